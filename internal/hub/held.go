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
	// maxHeldBytes bounds those of one tenant; the oldest give way.
	maxHeldBytes = 2 << 30
	// maxHeldIDs bounds the pictures of one graph.
	maxHeldIDs = 256
)

// held are the pictures that wait for their instance.
type held struct {
	storage *files.Storage
	mu      sync.Mutex // one at a time counts and evicts
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shrink(ctx, s.folder(tenant), maxHeldBytes, time.Time{})
}

// shrink deletes what is older than a moment, and the oldest beyond a number
// of bytes.
func (s *held) shrink(ctx context.Context, prefix string, most int64, before time.Time) error {
	var all []files.Blob
	if err := s.storage.List(ctx, prefix, func(b files.Blob) error { all = append(all, b); return nil }); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b files.Blob) int { return cmp.Compare(b.Modified.UnixNano(), a.Modified.UnixNano()) })
	var size int64
	for n, b := range all {
		size += b.Size
		if n > 0 && most > 0 && size > most || b.Modified.Before(before) {
			if err := s.storage.Delete(ctx, b.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// expire deletes what nobody has fetched in time.
func (s *held) expire(ctx context.Context) error {
	return s.shrink(ctx, heldPrefix, 0, time.Now().Add(-heldFor))
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
