package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// Fetch asks an instance's /view for a file. Of the header, ranges and conditions are passed on;
// nil is fine. The answer is the instance's own; the caller closes its body.
type Fetch func(ctx context.Context, src Source, header http.Header) (*http.Response, error)

// Collector copies outputs from their instances to the storage. A file is copied once however many
// ask for it, and appears in the storage only once it is complete.
type Collector struct {
	store *Store
	fetch Fetch
	slots *slots
	// uplink, patience, room and kept are the options of these names.
	uplink   func(instance string) string
	patience Patience
	room     func() int64
	kept     func(src Source, sha256 string)
	log      *slog.Logger
	// largest and small are the constants maxOutput and smallOutput, except in tests.
	largest, small int64

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

// flight is one copy under way and those waiting for it.
type flight struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{}
	entry   Entry
	err     error
}

// CollectorOptions adjust a Collector; the zero value is fine.
type CollectorOptions struct {
	// Parallel bounds the copies at one time. Default: 64, or 24 to an object store, where each may
	// hold parts of 8 MiB in memory.
	Parallel int
	// Uplink names the line that an instance's files come over: its machine's. A slow line holds up
	// only its own files. Default: the instance's name.
	Uplink func(instance string) string
	// Patience is how long an instance may fail before its files count as lost.
	Patience Patience
	// Room is how much a large output may add to the storage now, in bytes. Default: anything.
	Room func() int64
	// Kept is told of each output that the storage has from now on. Optional; it must not block.
	Kept func(src Source, sha256 string)
	// Logger never gets names of files. Default: nothing is logged.
	Logger *slog.Logger
}

// ErrClosed says that the collector was closed.
var ErrClosed = errors.New("files: collector closed")

// NewCollector makes a Collector; it must be closed.
func NewCollector(store *Store, fetch Fetch, o CollectorOptions) *Collector {
	if o.Parallel <= 0 {
		o.Parallel = 64
		if store.storage.Remote() {
			o.Parallel = 24
		}
	}
	if o.Uplink == nil {
		o.Uplink = func(instance string) string { return instance }
	}
	if o.Room == nil {
		o.Room = func() int64 { return math.MaxInt64 }
	}
	if o.Kept == nil {
		o.Kept = func(Source, string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Collector{
		store: store, fetch: fetch, slots: newSlots(o.Parallel), log: o.Logger,
		uplink: o.Uplink, patience: o.Patience.withDefaults(), room: o.Room, kept: o.Kept,
		largest: maxOutput, small: smallOutput,
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

// Collect returns a file's entry once the hub has its bytes, copying them if need be. ErrNotFound:
// no such name. ErrGone: the instance no longer has the file. ErrChanged: it has another one there.
// ErrInstance, ErrStorage and errors of Redis may pass.
func (c *Collector) Collect(ctx context.Context, tenant string, ref job.FileRef) (Entry, error) {
	return c.collect(ctx, tenant, ref, Entry{}, nil)
}

// collect is Collect. known is the file's entry if it was just read or written, so that it need not
// be read again, and o its download if that has begun.
func (c *Collector) collect(ctx context.Context, tenant string, ref job.FileRef, known Entry, o *opened) (Entry, error) {
	p, ok := placeOf(ref)
	switch {
	case !ok:
		o.drop()
		return Entry{}, ErrNotFound
	case known.Stored():
		o.drop()
		return known, nil
	}
	f, err := c.board(flightKey{tenant, p}, known, o)
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
func (c *Collector) board(key flightKey, known Entry, o *opened) (*flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		o.drop()
		return nil, ErrClosed
	}
	if f := c.flights[key]; f != nil {
		o.drop()
		f.waiting++
		return f, nil
	}
	// It has a context of its own: it goes on as long as anyone waits, not just the first.
	ctx, cancel := context.WithCancel(c.ctx)
	f := &flight{waiting: 1, cancel: cancel, done: make(chan struct{})}
	c.flights[key] = f
	c.running.Go(func() {
		defer cancel()
		f.err = panics.Do(c.log, "copying an output", func() (err error) {
			defer o.drop()
			f.entry, err = c.copy(ctx, key, known, o)
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

// leave ends a copy that nobody is waiting for any more.
func (c *Collector) leave(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.waiting--; f.waiting > 0 {
		return
	}
	f.cancel()
	// The next one to ask must not board a copy that is being given up.
	for key, other := range c.flights {
		if other == f {
			delete(c.flights, key)
		}
	}
}

func (c *Collector) copy(ctx context.Context, key flightKey, e Entry, o *opened) (Entry, error) {
	if e.Source == nil {
		var err error
		if e, err = c.store.resolve(ctx, key.tenant, key.place); err != nil || e.Stored() {
			return e, err
		}
	}
	if e.Source == nil {
		return Entry{}, ErrGone
	}
	copied, err := c.transfer(ctx, *e.Source, o)
	o.drop() // naming it may take long
	if err != nil {
		return Entry{}, err
	}
	stored, err := c.name(ctx, key.tenant, e, copied)
	if err == nil {
		c.kept(*e.Source, copied.SHA256)
	}
	return stored, err
}

// name gives a copy to its file. A Redis that is away, or answers but takes nothing, is waited for:
// the bytes are here, and fetching them again would leave another blob each time.
func (c *Collector) name(ctx context.Context, tenant string, e Entry, copied Copied) (Entry, error) {
	var trouble retry.Trouble
	unclear := false // it may have its name already, and even be in the trash with that
	for pauses := retry.New(firstCopyPause, longestCopyPause); ; {
		stored, err := c.store.SetStored(ctx, tenant, e, copied)
		if errors.Is(err, errUnsafe) {
			stored, err = c.setOld(ctx, tenant, e, copied)
		}
		if !errors.Is(err, redis.ErrUnavailable) {
			lost := errors.Is(err, ErrNotFound) || err == nil && stored.Key != copied.Key // another hub was faster
			if lost && !unclear {
				c.discard(ctx, copied.Key)
			}
			return stored, err
		}
		unclear = true
		if trouble.IsNews(err) {
			c.log.Warn("cannot name the copy of an output yet, will try again", "error", err)
		}
		if !pauses.Wait(ctx) {
			return Entry{}, err
		}
	}
}

// discard deletes a copy that nothing else can name.
func (c *Collector) discard(ctx context.Context, key string) {
	if err := c.store.storage.Delete(ctx, key); err != nil {
		c.log.Warn("a redundant copy stays until the next sweep", "error", err)
	}
}

// setOld is SetStored for a blob that took so long that a sweep may have deleted it.
func (c *Collector) setOld(ctx context.Context, tenant string, e Entry, copied Copied) (Entry, error) {
	if err := c.store.blobs.hold(ctx, copied.Key); err != nil {
		return Entry{}, err
	}
	if _, err := c.store.storage.Stat(ctx, copied.Key); errors.Is(err, ErrGone) {
		return Entry{}, errUnsafe // the next try copies it again
	} else if err != nil {
		return Entry{}, err
	}
	copied.Began = time.Time{}
	return c.store.SetStored(ctx, tenant, e, copied)
}

// transfer copies the bytes of a source into the storage under a new key.
func (c *Collector) transfer(ctx context.Context, src Source, o *opened) (Copied, error) {
	from := o.take(ctx, src)
	if from == nil {
		o.drop() // it holds a slot
		leave, err := c.slots.enter(ctx, c.uplink(src.Instance))
		if err != nil {
			return Copied{}, err
		}
		defer leave()
		if from, err = startDownload(ctx, c.fetch, src, c.patience); err != nil {
			return Copied{}, fmt.Errorf("files: fetch: %w", err)
		}
		defer from.drop()
	}
	whole, err := c.sized(from, from.size)
	if err != nil {
		return Copied{}, fmt.Errorf("files: fetch: %w", err)
	}
	body, err := keepsPromise(whole, src.Filename)
	if err != nil {
		return Copied{}, fmt.Errorf("files: fetch: %w", err)
	}
	hash := sha256.New()
	blob := outputKey(uuid.NewString())
	began := c.store.now()
	size, err := c.store.storage.Write(ctx, blob, io.TeeReader(body, hash))
	if err != nil {
		return Copied{}, fmt.Errorf("files: copy: %w", err)
	}
	c.store.fetched(size)
	return Copied{
		Key: blob, Size: size, SHA256: hex.EncodeToString(hash.Sum(nil)), Modified: lastModified(from.header),
		Began: began,
	}, nil
}

// checkFetched makes sure that an answer is the complete file that was meant.
func checkFetched(resp *http.Response, src Source) error {
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return ErrGone
	default:
		return fmt.Errorf("%w: instance answers %d", ErrInstance, resp.StatusCode)
	}
	if replaced(resp, src) {
		return ErrChanged
	}
	return nil
}

// replaced reports whether an answer is about another file than the source, which now has its name.
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
