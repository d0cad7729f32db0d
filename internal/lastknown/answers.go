// Package lastknown keeps the last answers of instances, so that a hub can give
// them while no instance is connected.
package lastknown

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
)

// MaxBody is the size of the largest answer that is kept, in bytes as it is sent.
const MaxBody = 64 << 20

const (
	// storageKey is the blob of the answers in the storage.
	storageKey = "hub/last-known.json"
	// saveEvery is how often answers that have changed are written.
	saveEvery = 20 * time.Second
	// settledFor is how long an answer counts as what an instance says now, for
	// routes that it reads once in the life of its process.
	settledFor = time.Minute
	// loadTimeout is how long a request waits for the blob to be read at start.
	loadTimeout = 2 * time.Second

	maxAnswers = 2000     // 0.33 has some hundred subgraphs, each with a path
	maxSize    = 32 << 20 // bytes of all answers, compressed
)

// classesPath is the listing of the node classes. It is kept as it is for
// somebody who has uploaded nothing.
const classesPath = "/object_info"

// Answers are the last answers of instances to what the web UI asks while it
// loads: lists and objects that are the same for everybody. The UI shows a blank
// page when one of these calls fails. While no instance is connected it gets
// the last answer instead, also after a restart of the hub. Nothing that belongs
// to a tenant is kept.
type Answers struct {
	storage *files.Storage
	log     *slog.Logger
	enc     *zstd.Encoder
	dec     *zstd.Decoder
	// read is closed once the blob was read, or turned out not to be there.
	read chan struct{}

	mu      sync.Mutex
	answers map[string]*answer
	size    int
	uses    int64
	changed bool
}

// answer is one answer. The exported fields are what is stored.
type answer struct {
	Body []byte // zstd
	// Owner is the agent of the instance that gave it, or the instance if it has no agent;
	// empty for an answer that the hub made.
	Owner string `json:",omitempty"`
	// used orders the answers by their last use.
	used int64
	// by is the instance that gave it to this process, at that time.
	by *comfyui.Client
	at time.Time
}

// New makes answers without any; Run reads what the storage has of them.
func New(storage *files.Storage, log *slog.Logger) (*Answers, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxBody))
	if err != nil {
		return nil, err
	}
	return &Answers{storage: storage, log: log, enc: enc, dec: dec, read: make(chan struct{}), answers: map[string]*answer{}}, nil
}

// Keep keeps the answer to a path. owner and by are of the instance that gave it, see
// [Answers.Last], nothing for an answer that the hub made. empty is the smallest answer of
// the route: an answer of another shape, or one that is not JSON, is not kept.
func (k *Answers) Keep(path string, body []byte, empty, owner string, by *comfyui.Client) {
	if len(body) > MaxBody || !shapedAs(body, empty) || string(body) == "null" {
		return // null answers names that somebody made up
	}
	packed := k.enc.EncodeAll(body, nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.answers[path]
	if old != nil && old.Owner == owner && bytes.Equal(old.Body, packed) {
		old.by, old.at = by, time.Now()
		return
	}
	k.put(path, &answer{Body: packed, Owner: owner, by: by, at: time.Now()})
	k.changed = true
}

// put adds an answer and drops those used longest ago while there are too many.
func (k *Answers) put(path string, a *answer) {
	if old := k.answers[path]; old != nil {
		k.size -= len(old.Body)
	}
	k.uses++
	a.used = k.uses
	k.answers[path] = a
	k.size += len(a.Body)
	for len(k.answers) > maxAnswers || k.size > maxSize {
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

// Last is the last answer to a path, if there is one whose owner still counts. The owner is
// that of [Answers.Keep]: an instance that was thrown out must not go on speaking. Just after
// the start it waits for the storage for at most two seconds.
func (k *Answers) Last(ctx context.Context, path string, counts func(owner string) bool) ([]byte, bool) {
	k.await(ctx)
	return k.find(path, func(a *answer) bool { return counts(a.Owner) })
}

// Has reports whether Last has an answer.
func (k *Answers) Has(ctx context.Context, path string, counts func(owner string) bool) bool {
	k.await(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.answers[path]
	return a != nil && counts(a.Owner)
}

// await waits for the storage, not for long.
func (k *Answers) await(ctx context.Context) {
	select {
	case <-k.read:
	case <-ctx.Done():
	case <-time.After(loadTimeout):
	}
}

// Forget drops the answers of an owner, and those that the hub has made of many
// instances' answers, its own among them.
func (k *Answers) Forget(owner string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for path, a := range k.answers {
		if a.Owner == owner || a.Owner == "" {
			k.size -= len(a.Body)
			delete(k.answers, path)
			k.changed = true
		}
	}
}

// Settled is the answer that an instance gave within the last minute.
func (k *Answers) Settled(path string, by *comfyui.Client) ([]byte, bool) {
	return k.find(path, func(a *answer) bool { return a.by == by && time.Since(a.at) < settledFor })
}

func (k *Answers) find(path string, good func(*answer) bool) ([]byte, bool) {
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

// load reads the blob. An answer of this process counts before a stored one.
func (k *Answers) load(ctx context.Context) error {
	blob, err := k.storage.Open(ctx, storageKey, 0, -1)
	if errors.Is(err, files.ErrGone) {
		close(k.read)
		return nil
	}
	if err != nil {
		return err
	}
	defer blob.Close()
	stored := map[string]*answer{}
	if err := json.NewDecoder(io.LimitReader(blob, 2*maxSize)).Decode(&stored); err != nil {
		stored = nil // of another version, or cut off; the hub works without it
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
func (k *Answers) save(ctx context.Context) error {
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
	if _, err := k.storage.Write(ctx, storageKey, bytes.NewReader(text)); err != nil {
		k.mu.Lock()
		k.changed = true
		k.mu.Unlock()
		return fmt.Errorf("lastknown: %s: %w", storageKey, err)
	}
	return nil
}

// Run reads the stored answers, and tries again while the storage is
// unavailable. Until the context ends it writes the answers that have changed,
// and once more after that. classes is the fleet's catalog, nil while nothing is
// known; it is kept as the answer to GET /object_info.
func (k *Answers) Run(ctx context.Context, classes func() *catalog.Catalog) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	tag := "" // of the classes that are kept
	save := func(ctx context.Context) error {
		if c := classes(); c != nil {
			if document := c.ObjectInfo(nil); document.ETag != tag {
				tag = document.ETag
				k.Keep(classesPath, document.Body(), "{}", "", nil)
			}
		}
		return k.save(ctx)
	}
	for loaded := false; ; {
		var err error
		if !loaded {
			err = k.load(ctx)
			loaded = err == nil
		}
		if loaded {
			err = save(ctx)
		}
		if err != nil && ctx.Err() == nil {
			k.log.Debug("cannot keep the last answers of instances", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if !loaded {
				return
			}
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			_ = save(last)
			cancel()
			return
		}
	}
}
