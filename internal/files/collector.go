package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/rescue"
)

// Fetch asks an instance's /view for a file. Of the header, ranges and
// conditions are passed on; nil is fine. The answer is the instance's own; the
// caller closes its body.
type Fetch func(ctx context.Context, src Source, header http.Header) (*http.Response, error)

// Collector copies outputs from their instances to the storage. A file is
// copied once however many ask for it, and is seen in the storage only when it
// is whole.
type Collector struct {
	store *Store
	fetch Fetch
	slots chan struct{}
	log   *slog.Logger

	ctx  context.Context // ends with Close
	stop context.CancelFunc

	mu      sync.Mutex
	flights map[flightKey]*flight
	running sync.WaitGroup
}

type flightKey struct {
	tenant string
	place  place
}

// flight is one copy under way and those who wait for it.
type flight struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{}
	entry   Entry
	err     error
}

// CollectorOptions adjust a Collector; the zero value is fine.
type CollectorOptions struct {
	// Parallel bounds the copies at one time. Default: 8.
	Parallel int
	// Logger never gets names of files. Default: nothing is logged.
	Logger *slog.Logger
}

// ErrClosed says that the collector was closed.
var ErrClosed = errors.New("files: collector closed")

// NewCollector makes a Collector; it must be closed.
func NewCollector(store *Store, fetch Fetch, o CollectorOptions) *Collector {
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Collector{
		store: store, fetch: fetch, slots: make(chan struct{}, o.Parallel), log: o.Logger,
		ctx: ctx, stop: stop, flights: map[flightKey]*flight{},
	}
}

// Close ends the copies under way and waits for them.
func (c *Collector) Close() {
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	c.running.Wait()
}

// Done is closed when the collector is.
func (c *Collector) Done() <-chan struct{} { return c.ctx.Done() }

// Collect returns a file's entry once the hub has its bytes, and copies them if
// need be. ErrNotFound: no such name. ErrGone: the instance does not have the
// file any more. ErrChanged: it has another one there. Other errors are the
// instance's, the storage's (ErrStorage) or Redis's, and may pass.
func (c *Collector) Collect(ctx context.Context, tenant string, ref job.FileRef) (Entry, error) {
	p, ok := placeOf(ref)
	if !ok {
		return Entry{}, ErrNotFound
	}
	e, err := c.store.resolve(ctx, tenant, p)
	if err != nil || e.Stored() {
		return e, err
	}
	key := flightKey{tenant, p}
	f, err := c.board(key)
	if err != nil {
		return Entry{}, err
	}
	defer c.leave(f)
	select {
	case <-f.done:
		return f.entry, f.err
	case <-ctx.Done():
		return Entry{}, ctx.Err()
	}
}

// board joins the copy of a file, starting it if there is none.
func (c *Collector) board(key flightKey) (*flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if f := c.flights[key]; f != nil {
		f.waiting++
		return f, nil
	}
	// Of its own context: it goes on while anyone waits, not only the first.
	ctx, cancel := context.WithCancel(c.ctx)
	f := &flight{waiting: 1, cancel: cancel, done: make(chan struct{})}
	c.flights[key] = f
	c.running.Go(func() {
		defer cancel()
		f.err = rescue.Do(c.log, "copying an output", func() (err error) {
			f.entry, err = c.copy(ctx, key)
			return err
		})
		c.mu.Lock()
		if c.flights[key] == f {
			delete(c.flights, key)
		}
		c.mu.Unlock()
		close(f.done)
	})
	return f, nil
}

// leave ends a copy for which nobody waits any more.
func (c *Collector) leave(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.waiting--; f.waiting > 0 {
		return
	}
	f.cancel()
	// The next one who asks must not board a copy that is being given up.
	for key, other := range c.flights {
		if other == f {
			delete(c.flights, key)
		}
	}
}

func (c *Collector) copy(ctx context.Context, key flightKey) (Entry, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return Entry{}, ctx.Err()
	}
	e, err := c.store.resolve(ctx, key.tenant, key.place)
	if err != nil || e.Stored() {
		return e, err
	}
	if e.Source == nil {
		return Entry{}, ErrGone
	}
	blob, copied, err := c.transfer(ctx, *e.Source)
	if err != nil {
		return Entry{}, err
	}
	if err := c.store.hold(ctx, blob); err != nil {
		return Entry{}, err
	}
	stored, err := c.store.SetStored(ctx, key.tenant, e, copied)
	if err == nil && stored.Key != blob {
		// Another hub was faster; ours has a key that nobody else knows.
		if err := c.store.storage.Delete(ctx, blob); err != nil {
			c.log.Warn("a superfluous copy stays until the next sweep", "error", err)
		}
	}
	return stored, err
}

// transfer brings the bytes of a source into the storage under a new key.
func (c *Collector) transfer(ctx context.Context, src Source) (blob string, copied Copied, err error) {
	resp, err := c.fetch(ctx, src, nil)
	if err != nil {
		return "", Copied{}, fmt.Errorf("files: fetch: %w", err)
	}
	defer resp.Body.Close()
	if err := checkFetched(resp, src); err != nil {
		return "", Copied{}, err
	}
	hash := sha256.New()
	blob = outputKey(uuid.NewString())
	size, err := c.store.storage.Write(ctx, blob, io.TeeReader(resp.Body, hash))
	if err != nil {
		return "", Copied{}, fmt.Errorf("files: copy: %w", err)
	}
	return blob, Copied{
		Key: blob, Size: size, SHA256: hex.EncodeToString(hash.Sum(nil)), Modified: lastModified(resp.Header),
	}, nil
}

// checkFetched makes sure that an answer is the whole file that was meant.
func checkFetched(resp *http.Response, src Source) error {
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return ErrGone
	default:
		return fmt.Errorf("files: instance answers %d", resp.StatusCode)
	}
	if replaced(resp, src) {
		return ErrChanged
	}
	return nil
}

// replaced reports whether an answer is of another file than the source, which
// has its name by now.
func replaced(resp *http.Response, src Source) bool {
	etag := resp.Header.Get("ETag")
	return etag != "" && src.ETag != "" && etag != src.ETag
}

func lastModified(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return time.Time{}
	}
	return t
}
