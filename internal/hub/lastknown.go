package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
)

const (
	// lastKnownKey is the blob of the answers in the storage.
	lastKnownKey = "hub/last-known.json"
	// saveKnownEvery is how often answers that have changed are written.
	saveKnownEvery = 20 * time.Second
	// settledFor is how long an instance's answer to a route that it reads once in
	// the life of its process stands for further ones.
	settledFor = time.Minute
	// awaitKnown is how long a request waits for the blob to be read at start.
	awaitKnown = 2 * time.Second

	maxKnownAnswers = 2000     // 0.33 has some hundred subgraphs, each with a path
	maxKnownSize    = 32 << 20 // bytes of all answers, compressed
	maxKnownBody    = 64 << 20 // bytes of one, as it is sent
)

// lastKnown are the last answers of instances to what the web UI asks while it
// loads: lists and objects that are the same for everybody. The UI takes an
// error at one of them for its own end, and shows a blank page; so while no
// instance is connected it is told what was known last, also after a restart of
// the hub. Nothing that belongs to a tenant is kept.
type lastKnown struct {
	storage *files.Storage
	enc     *zstd.Encoder
	dec     *zstd.Decoder
	// read is closed once the blob was read, or turned out not to be there.
	read chan struct{}

	mu      sync.Mutex
	answers map[string]*knownAnswer
	size    int
	uses    int64
	changed bool
	// catalog is the ETag of the node classes that are kept.
	catalog string
}

// knownAnswer is one answer. The exported field is what is stored.
type knownAnswer struct {
	Body []byte // zstd
	// used orders the answers by their last use.
	used int64
	// by is the instance that gave it in this process's life, at that time.
	by *comfyui.Client
	at time.Time
}

func newLastKnown(storage *files.Storage) (*lastKnown, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxKnownBody))
	if err != nil {
		return nil, err
	}
	return &lastKnown{storage: storage, enc: enc, dec: dec, read: make(chan struct{}), answers: map[string]*knownAnswer{}}, nil
}

// keep notes an answer of an instance, nil for one that the hub has made. empty is the smallest answer of the route: what has
// another shape, or is no JSON, is not worth keeping.
func (k *lastKnown) keep(path string, body []byte, empty string, by *comfyui.Client) {
	if len(body) > maxKnownBody || !shapedAs(body, empty) || string(body) == "null" {
		return // null is what is said of names that somebody made up
	}
	packed := k.enc.EncodeAll(body, nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.answers[path]
	if old != nil && bytes.Equal(old.Body, packed) {
		old.by, old.at = by, time.Now()
		return
	}
	k.put(path, &knownAnswer{Body: packed, by: by, at: time.Now()})
	k.changed = true
}

// put adds an answer and lets those go that were used longest ago.
func (k *lastKnown) put(path string, a *knownAnswer) {
	if old := k.answers[path]; old != nil {
		k.size -= len(old.Body)
	}
	k.uses++
	a.used = k.uses
	k.answers[path] = a
	k.size += len(a.Body)
	for len(k.answers) > maxKnownAnswers || k.size > maxKnownSize {
		oldest := path
		for name, other := range k.answers {
			if other.used < k.answers[oldest].used {
				oldest = name
			}
		}
		k.size -= len(k.answers[oldest].Body)
		delete(k.answers, oldest)
	}
}

// answer is the last known one; false where there is none.
func (k *lastKnown) answer(ctx context.Context, path string) ([]byte, bool) {
	select {
	case <-k.read:
	case <-ctx.Done():
	case <-time.After(awaitKnown):
	}
	return k.find(path, func(*knownAnswer) bool { return true })
}

// settled is what an instance has just answered.
func (k *lastKnown) settled(path string, by *comfyui.Client) ([]byte, bool) {
	return k.find(path, func(a *knownAnswer) bool { return a.by == by && time.Since(a.at) < settledFor })
}

func (k *lastKnown) find(path string, good func(*knownAnswer) bool) ([]byte, bool) {
	k.mu.Lock()
	a := k.answers[path]
	if a == nil || !good(a) {
		k.mu.Unlock()
		return nil, false
	}
	k.uses++
	a.used = k.uses
	packed := a.Body
	k.mu.Unlock()
	body, err := k.dec.DecodeAll(packed, nil)
	return body, err == nil
}

// shapedAs reports whether a body is JSON of the same kind as an example; null
// is an example of everything.
func shapedAs(body []byte, example string) bool {
	body = bytes.TrimLeft(body, " \t\r\n")
	return len(body) > 0 && (example == "null" || body[0] == example[0]) && json.Valid(body)
}

// load reads the blob. Of two answers to one call that of this process counts.
func (k *lastKnown) load(ctx context.Context) error {
	blob, err := k.storage.Open(ctx, lastKnownKey, 0, -1)
	if errors.Is(err, files.ErrGone) {
		close(k.read)
		return nil
	}
	if err != nil {
		return err
	}
	defer blob.Close()
	stored := map[string]*knownAnswer{}
	if err := json.NewDecoder(io.LimitReader(blob, 2*maxKnownSize)).Decode(&stored); err != nil {
		stored = nil // of another version, or cut: it is but a convenience
	}
	k.mu.Lock()
	for path, a := range stored {
		if a != nil && k.answers[path] == nil {
			k.put(path, a)
		}
	}
	k.mu.Unlock()
	close(k.read)
	return nil
}

// save writes the blob if an answer has changed.
func (k *lastKnown) save(ctx context.Context) error {
	k.mu.Lock()
	if !k.changed {
		k.mu.Unlock()
		return nil
	}
	k.changed = false
	text, err := json.Marshal(k.answers)
	k.mu.Unlock()
	if err != nil {
		return err
	}
	if _, err := k.storage.Write(ctx, lastKnownKey, bytes.NewReader(text)); err != nil {
		k.mu.Lock()
		k.changed = true
		k.mu.Unlock()
		return fmt.Errorf("hub: %s: %w", lastKnownKey, err)
	}
	return nil
}

// rememberAnswers reads the known answers at start, tries again while the
// storage is away, and writes them as they change and at the end.
func (h *Hub) rememberAnswers(ctx context.Context) {
	tick := time.NewTicker(saveKnownEvery)
	defer tick.Stop()
	for loaded := false; ; {
		var err error
		if !loaded {
			err = h.known.load(ctx)
			loaded = err == nil
		}
		if loaded {
			h.keepClasses()
			err = h.known.save(ctx)
		}
		if err != nil && ctx.Err() == nil {
			h.log().Debug("cannot keep the last answers of instances", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if !loaded {
				return
			}
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			h.keepClasses()
			_ = h.known.save(last)
			cancel()
			return
		}
	}
}

// classesPath is the listing of the node classes. It is kept as it is for
// somebody who has uploaded nothing.
const classesPath = "/object_info"

// keepClasses keeps the node classes of the fleet if they are others than
// before.
func (h *Hub) keepClasses() {
	if h.catalog() == nil {
		return
	}
	document := h.catalog().ObjectInfo(nil)
	if h.known.catalog != document.ETag {
		h.known.catalog = document.ETag
		h.known.keep(classesPath, document.Body(), "{}", nil)
	}
}

// writeKnown answers a call that no instance answers with what was known last,
// else with empty, which has the shape that the web UI reads.
func (h *Hub) writeKnown(w http.ResponseWriter, r *http.Request, empty string) {
	body, ok := h.known.answer(r.Context(), knownPath(r))
	if !ok {
		body = []byte(empty)
	}
	w.Header().Set("Cache-Control", "no-cache")
	api.WriteJSON(w, http.StatusOK, body)
}

// knownPath is the name under which an answer is kept. These routes read no
// query.
func knownPath(r *http.Request) string { return api.PathOf(r).Bare().Escaped() }

// getKnown lets the primary instance answer a call of the web UI, else the next
// one that can, else nobody: then the last answer counts. empty is the answer of
// a server that has nothing there; old versions of ComfyUI, which do not have
// the route (404), are answered for with it, since the web UI may be newer.
func (h *Hub) getKnown(empty string) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
		for _, client := range h.dispatch.Clients() {
			resp, err := client.Ask(r.Context(), knownPath(r), api.ForwardedQuery(r))
			if err != nil {
				if r.Context().Err() != nil {
					return // the visitor has gone
				}
				h.log().Debug("an instance did not answer", "error", err)
				continue
			}
			if resp.StatusCode == http.StatusNotFound {
				resp.Body.Close()
				api.WriteJSON(w, http.StatusOK, []byte(empty))
				return
			}
			if h.copyKnown(w, r, resp, empty, client) {
				return
			}
		}
		h.writeKnown(w, r, empty)
	}
}

// getSettled is getKnown for what an instance reads once and then keeps, as
// ComfyUI does with subgraphs, of which the web UI fetches some hundred one by
// one whenever it loads.
func (h *Hub) getSettled(empty string) api.Handler {
	ask := h.getKnown(empty)
	return func(w http.ResponseWriter, r *http.Request, a api.Requester, values []string) {
		if primary := h.dispatch.Primary(); primary != nil {
			if body, ok := h.known.settled(knownPath(r), primary); ok {
				api.WriteJSON(w, http.StatusOK, body)
				return
			}
		}
		ask(w, r, a, values)
	}
}

// copyKnown passes an answer on and keeps it; false if it ended in the middle,
// and nothing of it was passed on.
func (h *Hub) copyKnown(w http.ResponseWriter, r *http.Request, resp *http.Response, empty string, by *comfyui.Client) bool {
	if resp.StatusCode != http.StatusOK || resp.ContentLength > maxKnownBody || resp.Header.Get("Content-Encoding") != "" {
		api.CopyAnswer(w, resp)
		return true
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxKnownBody))
	if err != nil {
		resp.Body.Close()
		return false
	}
	if len(body) == maxKnownBody {
		// There may be more of it, which goes on as it comes.
		resp.Body = &joined{Reader: io.MultiReader(bytes.NewReader(body), resp.Body), Closer: resp.Body}
	} else {
		h.known.keep(knownPath(r), slices.Clip(body), empty, by)
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	api.CopyAnswer(w, resp)
	return true
}

// joined reads from one and closes another.
type joined struct {
	io.Reader
	io.Closer
}
