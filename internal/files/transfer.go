package files

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// firstCopyPause and longestCopyPause bound the pauses between two tries of a copy while the
	// instance or Redis is away.
	firstCopyPause   = 200 * time.Millisecond
	longestCopyPause = 2 * time.Second
	// longestRefusal is the longest pause while the storage refuses one output and shows no other
	// fault.
	longestRefusal = 20 * time.Second
	// longestKept is the longest time between two tries of a copy while the storage is sick.
	longestKept = time.Minute
	// maxRefused is how often an otherwise healthy storage may refuse an output, which takes about
	// ten minutes. There are files that no storage takes, such as one of a terabyte in an object
	// store.
	maxRefused = 40
)

// ErrNotConnected says that the instance that has a file is not connected.
var ErrNotConnected = errors.New("files: instance not connected")

// From fetches files from the instances that are connected.
func From(clients *comfyui.Clients) Fetch {
	return func(ctx context.Context, src Source, header http.Header) (*http.Response, error) {
		client := clients.ByName(src.Instance)
		if client == nil {
			return nil, ErrNotConnected
		}
		return client.View(ctx, src.Ref(), header)
	}
}

// FetchPreview asks the instance that made a file for a picture in another form.
// The caller closes the answer's body.
type FetchPreview func(ctx context.Context, src Source, q url.Values) (*http.Response, error)

// PreviewFrom asks the instances that are connected.
func PreviewFrom(clients *comfyui.Clients) FetchPreview {
	return func(ctx context.Context, src Source, q url.Values) (*http.Response, error) {
		client := clients.ByName(src.Instance)
		if client == nil {
			return nil, ErrNotConnected
		}
		return client.ViewQuery(ctx, q, nil)
	}
}

// Transfer moves the files of runs: inputs to the instance that gets a job, and
// outputs from it to the storage.
type Transfer struct {
	store     *Store
	collector *Collector
	held      *Held
	log       *slog.Logger
	// maxRefused is the constant maxRefused, except in tests.
	maxRefused int
}

// NewTransfer makes a Transfer. It remains up to the caller to close the collector.
func NewTransfer(store *Store, collector *Collector, held *Held, log *slog.Logger) *Transfer {
	return &Transfer{store: store, collector: collector, held: held, log: log, maxRefused: maxRefused}
}

// Push makes sure that an instance has the inputs of a job, and returns those that have another
// name there, as [Pusher.Push] does.
func (t *Transfer) Push(ctx context.Context, tenant string, in Inputs, to Target) ([]Rewrite, error) {
	for _, id := range in.Held {
		if err := t.held.push(ctx, tenant, id, to.Instance, t.collector.patience); err != nil {
			return nil, err
		}
	}
	pins, err := DecodePins(in.Pins)
	if err != nil || len(pins) == 0 {
		return nil, err
	}
	p := NewPusher(t.store, t.collector, tenant != job.DefaultTenant)
	return p.Push(ctx, tenant, pins, to)
}

// Collect gives outputs of one message of an instance their names at the hub, in order and the same
// ones each time, and begins to copy them. The names are durable when Collect returns; wait returns
// once the bytes are too, or never will be. The copies go on until ctx ends. cached says that the
// instance made the files in an earlier run, so that the hub probably has them. The names of new files
// follow those in after. ErrInstance says that the instance cannot be asked now.
func (t *Transfer) Collect(ctx context.Context, tenant string, outputs, after []job.FileRef, from Target, cached bool) (names []job.FileRef, wait func(context.Context) error, err error) {
	sources, all, err := t.sources(ctx, outputs, from, cached)
	if err != nil {
		return nil, nil, err
	}
	follow(sources, after)
	names, known, err := t.store.AllotOutputs(ctx, tenant, sources)
	if err != nil {
		dropAll(all)
		return nil, nil, err
	}
	return names, t.copyAll(ctx, tenant, names, sources, known, all), nil
}

// Patience is how long an instance may fail before its outputs count as lost.
func (t *Transfer) Patience() time.Duration { return t.collector.patience.Contact }

// copyAll begins to copy the files that sources name; wait returns once all are copied. known are
// their entries, and all what has been opened of them.
func (t *Transfer) copyAll(ctx context.Context, tenant string, names []job.FileRef, sources []Source, known []Entry, all []*opened) (wait func(context.Context) error) {
	var group errgroup.Group
	for n, name := range names {
		if sources[n].Viewable() {
			group.Go(func() error {
				return panics.Do(t.log, "copying an output", func() error { return t.copy(ctx, tenant, name, known[n], all[n]) })
			})
		}
	}
	var failure error
	done := make(chan struct{})
	go func() {
		failure = group.Wait()
		close(done)
	}()
	return func(ctx context.Context) error {
		select {
		case <-done:
			return failure
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// copy brings one output to the storage. The work of a run must not be lost to something that will
// pass: it waits for a Redis or a storage that is away as long as the instance has the file, and
// for an instance as long as Patience says.
func (t *Transfer) copy(ctx context.Context, tenant string, ref job.FileRef, known Entry, o *opened) error {
	pauses, refusals := retry.New(firstCopyPause, longestCopyPause), retry.New(firstCopyPause, longestRefusal)
	var (
		trouble retry.Trouble
		failing time.Time // since when the instance has been the problem
		refused int       // how often a storage that shows no other fault did
		kept    bool
	)
	for {
		_, err := t.collector.collect(ctx, tenant, ref, known, o)
		known, o = Entry{}, nil // a later try reads it again
		if err == nil || final(err) || errors.Is(err, panics.ErrPanic) || ctx.Err() != nil {
			return err
		}
		var (
			pause time.Duration
			again <-chan struct{}
		)
		switch {
		case errors.Is(err, ErrStorage):
			failing = time.Time{}
			if !kept {
				kept = true
				t.store.storage.Health().keep(1)
				defer t.store.storage.Health().keep(-1)
			}
			var well bool
			if well, again = t.store.storage.Health().wellness(); well {
				again = nil
				pause = refusals.Next()
				refused++
			} else {
				pause = longestKept
			}
			if refused > t.maxRefused {
				return err
			}
		case errors.Is(err, redis.ErrUnavailable):
			failing = time.Time{}
			pause = pauses.Next()
		default:
			if failing.IsZero() {
				failing = time.Now()
			}
			if time.Since(failing) > t.Patience() {
				return err
			}
			pause = pauses.Next()
		}
		if trouble.IsNews(err) {
			t.log.Warn("cannot copy an output yet, will try again", "error", err)
		}
		select {
		case <-time.After(pause):
		case <-again:
		case <-t.collector.Done():
			return err // the next hub looks for the run's outputs
		case <-ctx.Done():
			return err
		}
	}
}

// Has reports whether the hub has a file of a tenant, as far as is known now.
func (t *Transfer) Has(ctx context.Context, tenant string, ref job.FileRef) bool {
	e, err := t.store.Resolve(ctx, tenant, ref)
	return err == nil && e.Stored()
}

// Uses returns how to record, at the end of a job that names files, that this was their last use;
// see [Store.Uses].
func (t *Transfer) Uses(tenant string, names []job.FileRef) (indexes, members []string) {
	return t.store.Uses(tenant, names)
}
