package hub

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
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// The tooling nodes that the Krita plugin needs keep pictures in an instance's
// memory under ids of the client's: it puts them there before it posts the
// prompt that names them. The hub does not know yet which instance that will
// be, so it holds them, and puts them on the instance that gets the job.
const (
	heldPath   = "/api/etn/image/"
	heldPrefix = "held/"
	heldClass  = "ETN_" // begins the classes of those nodes
	// heldFor is how long a held picture is kept.
	heldFor = 24 * time.Hour
	// maxHeldBytes and maxHeldPictures bound those of one tenant; the oldest
	// give way.
	maxHeldBytes    = 2 << 30
	maxHeldPictures = 2000
	// maxAllHeldBytes bounds those of all; the oldest of the tenant that has
	// the most give way.
	maxAllHeldBytes = 16 << 30
	// maxHeldIDs bounds the pictures of one graph.
	maxHeldIDs = 256
)

// held are the pictures that wait for their instance.
type held struct {
	storage *files.Storage
	// locks let one at a time count and evict, by folder: a tenant with
	// thousands of pictures is counted for a while.
	locks [16]sync.Mutex
}

func (s *held) folder(tenant string) string { return heldPrefix + hashed(tenant) + "/" }

func (s *held) key(tenant, id string) string { return s.folder(tenant) + hashed(id) }

func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

func (s *held) has(ctx context.Context, tenant, id string) bool {
	_, err := s.storage.Stat(ctx, s.key(tenant, id))
	return err == nil
}

// put stores a picture and lets the oldest go where the tenant has too many.
func (s *held) put(ctx context.Context, tenant, id string, body io.Reader) error {
	if _, err := s.storage.Write(ctx, s.key(tenant, id), body); err != nil {
		return err
	}
	folder := s.folder(tenant)
	lock := &s.locks[folder[len(heldPrefix)]%byte(len(s.locks))]
	lock.Lock()
	defer lock.Unlock()
	return s.shrink(ctx, folder, maxHeldBytes, maxHeldPictures)
}

// shrink deletes a tenant's oldest pictures beyond a number of bytes and of
// pictures, but for the newest.
func (s *held) shrink(ctx context.Context, folder string, most int64, pictures int) error {
	all, err := s.list(ctx, folder)
	if err != nil {
		return err
	}
	var size int64
	for n, b := range all {
		size += b.Size
		if n > 0 && (size > most || n >= pictures) {
			if err := s.storage.Delete(ctx, b.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// list gives the pictures below a prefix, the newest first.
func (s *held) list(ctx context.Context, prefix string) ([]files.Blob, error) {
	var all []files.Blob
	err := s.storage.List(ctx, prefix, func(b files.Blob) error { all = append(all, b); return nil })
	slices.SortFunc(all, func(a, b files.Blob) int { return cmp.Compare(b.Modified.UnixNano(), a.Modified.UnixNano()) })
	return all, err
}

// expire deletes what nobody has fetched since a moment, and of what is left
// the oldest of the tenant that has the most until all take at most most bytes.
func (s *held) expire(ctx context.Context, before time.Time, most int64) error {
	all, err := s.list(ctx, heldPrefix)
	if err != nil {
		return err
	}
	var total int64
	sizes, folders := map[string]int64{}, map[string][]files.Blob{}
	for _, b := range all {
		if b.Modified.Before(before) {
			if err := s.storage.Delete(ctx, b.Key); err != nil {
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
		if err := s.storage.Delete(ctx, oldest.Key); err != nil {
			return err
		}
		folders[largest] = folders[largest][:last]
		sizes[largest] -= oldest.Size
		total -= oldest.Size
	}
	return nil
}

// in lists the held pictures that a graph names.
func (s *held) in(ctx context.Context, tenant string, graph *catalog.Graph) []string {
	nodes, _ := graph.Root().(*pyjson.Object)
	var ids []string
	for _, v := range nodes.All() {
		node, _ := v.(*pyjson.Object)
		if !strings.HasPrefix(node.String("class_type"), heldClass) {
			continue
		}
		for _, input := range node.Object("inputs").All() {
			id, _ := input.(pyjson.String)
			if id != "" && len(ids) < maxHeldIDs && !slices.Contains(ids, string(id)) && s.has(ctx, tenant, string(id)) {
				ids = append(ids, string(id))
			}
		}
	}
	return ids
}

// push puts a held picture on an instance. One that is gone is left to the
// node, which says so better than the hub could.
func (s *held) push(ctx context.Context, tenant, id string, to *comfyui.Client) error {
	blob, err := s.storage.Stat(ctx, s.key(tenant, id))
	if errors.Is(err, files.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	body, err := s.storage.Open(ctx, blob.Key, 0, -1)
	if err != nil {
		return err
	}
	defer body.Close()
	kind, whole, err := sniff(body)
	if err != nil {
		return err
	}
	if err := to.Put(ctx, heldPath+url.PathEscape(id), kind, whole, blob.Size); err != nil {
		return fmt.Errorf("hub: held picture: %w", err)
	}
	return nil
}

// sniff tells the type of a body by its beginning.
func sniff(body io.Reader) (kind string, whole io.Reader, err error) {
	head := make([]byte, 512)
	n, err := io.ReadFull(body, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", nil, err
	}
	return http.DetectContentType(head[:n]), io.MultiReader(bytes.NewReader(head[:n]), body), nil
}
