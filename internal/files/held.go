package files

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
)

// HeldPath is the route of held pictures at an instance, followed by their id.
const HeldPath = "/api/etn/image/"

const (
	heldPrefix = "held/"
	// heldFor is how long a held picture is kept.
	heldFor = 24 * time.Hour
	// maxHeldBytes and maxHeldPictures bound those of one tenant; the oldest make way.
	maxHeldBytes    = 2 << 30
	maxHeldPictures = 2000
	// maxAllHeldBytes bounds those of everybody; the oldest of the tenant with the most make way.
	maxAllHeldBytes = 16 << 30
)

// Held are the pictures that are waiting for their instance. The tooling nodes that the Krita
// plugin needs keep pictures in an instance's memory under ids chosen by the client, which puts
// them there before it posts the prompt that names them. The hub does not know yet which instance
// that will be, so it holds them, and puts them on the instance that gets the job.
type Held struct {
	storage *Storage
	// locks let one at a time count and evict, by folder: counting a tenant with thousands of
	// pictures takes a while.
	locks [16]*semaphore.Weighted
}

// NewHeld keeps pictures in a storage.
func NewHeld(storage *Storage) *Held {
	h := &Held{storage: storage}
	for n := range h.locks {
		h.locks[n] = semaphore.NewWeighted(1)
	}
	return h
}

func (h *Held) folder(tenant string) string { return heldPrefix + hashed(tenant) + "/" }

func (h *Held) key(tenant, id string) string { return h.folder(tenant) + hashed(id) }

func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Has reports whether a tenant has put a picture.
func (h *Held) Has(ctx context.Context, tenant, id string) bool {
	_, err := h.storage.Stat(ctx, h.key(tenant, id))
	return err == nil
}

// Put stores a picture, and drops the oldest if the tenant has too many.
func (h *Held) Put(ctx context.Context, tenant, id string, body io.Reader) error {
	if _, err := h.storage.Write(ctx, h.key(tenant, id), body); err != nil {
		return err
	}
	folder := h.folder(tenant)
	lock := h.locks[folder[len(heldPrefix)]%byte(len(h.locks))]
	if err := lock.Acquire(ctx, 1); err != nil {
		return err
	}
	defer lock.Release(1)
	return h.shrink(ctx, folder, maxHeldBytes, maxHeldPictures)
}

// shrink deletes a tenant's oldest pictures beyond a number of bytes and of pictures, but never the
// newest.
func (h *Held) shrink(ctx context.Context, folder string, most int64, pictures int) error {
	all, err := h.list(ctx, folder)
	if err != nil {
		return err
	}
	var size int64
	for n, b := range all {
		size += b.Size
		if n > 0 && (size > most || n >= pictures) {
			if err := h.storage.Delete(ctx, b.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// list returns the pictures below a prefix, the newest first.
func (h *Held) list(ctx context.Context, prefix string) ([]Blob, error) {
	var all []Blob
	err := h.storage.List(ctx, prefix, func(b Blob) error { all = append(all, b); return nil })
	slices.SortFunc(all, func(a, b Blob) int { return cmp.Compare(b.Modified.UnixNano(), a.Modified.UnixNano()) })
	return all, err
}

// Expire deletes pictures that nobody has fetched for a day by the storage's clock, whose time is
// now. While the rest still takes up too much, it deletes the oldest of the tenant with the most.
func (h *Held) Expire(ctx context.Context, now time.Time) error {
	return h.expire(ctx, now.Add(-heldFor), maxAllHeldBytes)
}

// expire deletes pictures that nobody has fetched since before, and then the oldest of the tenant
// with the most until all take up at most most bytes.
func (h *Held) expire(ctx context.Context, before time.Time, most int64) error {
	all, err := h.list(ctx, heldPrefix)
	if err != nil {
		return err
	}
	var total int64
	sizes, folders := map[string]int64{}, map[string][]Blob{}
	for _, b := range all {
		if b.Modified.Before(before) {
			if err := h.storage.Delete(ctx, b.Key); err != nil {
				return err
			}
			continue
		}
		folder := path.Dir(b.Key)
		folders[folder] = append(folders[folder], b)
		sizes[folder] += b.Size
		total += b.Size
	}
	for total > most {
		largest := ""
		for folder, size := range sizes {
			if largest == "" || size > sizes[largest] {
				largest = folder
			}
		}
		last := len(folders[largest]) - 1
		oldest := folders[largest][last]
		if err := h.storage.Delete(ctx, oldest.Key); err != nil {
			return err
		}
		folders[largest] = folders[largest][:last]
		sizes[largest] -= oldest.Size
		total -= oldest.Size
	}
	return nil
}

// Open reads a picture; kind is its type, judged by its beginning. The error is ErrGone if there is
// none. The caller closes body.
func (h *Held) Open(ctx context.Context, tenant, id string) (body io.ReadCloser, kind string, size int64, err error) {
	body, size, err = h.open(ctx, h.key(tenant, id))
	if err != nil {
		return nil, "", 0, err
	}
	kind, whole, err := sniff(body)
	if err != nil {
		body.Close()
		return nil, "", 0, err
	}
	return struct {
		io.Reader
		io.Closer
	}{whole, body}, kind, size, nil
}

// open reads a picture whose size is known. One that is replaced meanwhile is looked at once more.
func (h *Held) open(ctx context.Context, key string) (body io.ReadCloser, size int64, err error) {
	for range 2 {
		blob, err := h.storage.Stat(ctx, key)
		if err != nil {
			return nil, 0, err
		}
		size = blob.Size
		if body, err = h.storage.OpenSized(ctx, key, size, 0, -1); !errors.Is(err, ErrGone) {
			return body, size, err
		}
	}
	return nil, 0, ErrGone
}

// push puts a held picture on an instance. If it is gone, that is left to the node, which says so
// better than the hub could.
func (h *Held) push(ctx context.Context, tenant, id string, to Instance, patience Patience) error {
	body, kind, size, err := h.Open(ctx, tenant, id)
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer body.Close()
	err = patience.feed(ctx, storedReader{body, ctx, h.storage, h.key(tenant, id)}, func(ctx context.Context, body io.Reader) error {
		return to.Put(ctx, HeldPath+url.PathEscape(id), kind, body, size)
	})
	if err != nil {
		return fmt.Errorf("files: held picture: %w", err)
	}
	return nil
}

// sniff tells the type of a body from its beginning.
func sniff(body io.Reader) (kind string, whole io.Reader, err error) {
	head := make([]byte, 512)
	n, err := io.ReadFull(body, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", nil, err
	}
	return http.DetectContentType(head[:n]), io.MultiReader(bytes.NewReader(head[:n]), body), nil
}
