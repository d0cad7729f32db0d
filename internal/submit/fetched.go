package submit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/files"
)

// ErrFetching says that files are already being fetched for too many prompts.
var ErrFetching = errors.New("hub: too many prompts wait for files from elsewhere")

// Bounds of fetching. A prompt's files are on the local disk meanwhile, together at most as large
// as an upload may be.
const (
	fetchTimeout   = time.Minute      // for all files of a prompt
	fetchPatience  = 10 * time.Second // until it is the prompt's turn
	maxFetching    = 16               // prompts at once
	maxFetchingOne = 4                // prompts of a tenant at once
	MaxURL         = 8190             // bytes, as in aiohttp
)

// Fetcher fetches inputs by their URLs.
type Fetcher struct {
	store    receiver
	settings func() *config.Settings
	Options  egress.Options

	all *semaphore.Weighted
	mu  sync.Mutex
	// tenants are those whose prompts are fetching, or waiting to.
	tenants map[string]*fetchShare
}

// fetchShare is how much of the fetcher one tenant may use.
type fetchShare struct {
	turns *semaphore.Weighted
	users int
}

// receiver takes in a file that becomes an input.
type receiver interface {
	Fetch(ctx context.Context, r io.Reader, limit int64) (*files.Fetched, error)
}

// NewFetcher fetches into a store, from the hosts that the settings name.
func NewFetcher(store receiver, settings func() *config.Settings) *Fetcher {
	return &Fetcher{store: store, settings: settings, all: semaphore.NewWeighted(maxFetching), tenants: map[string]*fetchShare{}}
}

// fetching is one prompt's turn to fetch.
type fetching struct {
	fetcher *Fetcher
	client  *egress.Client
	ctx     context.Context
	cancel  context.CancelFunc
	end     func()
	limit   int64 // bytes that may still come
	known   map[string]*files.Fetched
}

// begin waits for a prompt's turn. The error is errFetching, or the context's.
func (f *Fetcher) begin(ctx context.Context, tenant string) (*fetching, error) {
	end, err := f.turn(ctx, tenant)
	if err != nil {
		return nil, err
	}
	s := f.settings()
	turn := &fetching{fetcher: f, client: egress.NewClient(s.InputsFrom, f.Options), end: end, limit: s.MaxUpload, known: map[string]*files.Fetched{}}
	turn.ctx, turn.cancel = context.WithTimeout(ctx, fetchTimeout)
	return turn, nil
}

// turn waits until a tenant's prompt may fetch; end must be called afterwards.
func (f *Fetcher) turn(ctx context.Context, tenant string) (end func(), err error) {
	f.mu.Lock()
	share := f.tenants[tenant]
	if share == nil {
		share = &fetchShare{turns: semaphore.NewWeighted(maxFetchingOne)}
		f.tenants[tenant] = share
	}
	share.users++
	f.mu.Unlock()
	leave := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if share.users--; share.users == 0 {
			delete(f.tenants, tenant)
		}
	}
	wait, cancel := context.WithTimeout(ctx, fetchPatience)
	defer cancel()
	if share.turns.Acquire(wait, 1) != nil {
		leave()
		return nil, errors.Join(ErrFetching, ctx.Err())
	}
	if f.all.Acquire(wait, 1) != nil {
		share.turns.Release(1)
		leave()
		return nil, errors.Join(ErrFetching, ctx.Err())
	}
	return func() { f.all.Release(1); share.turns.Release(1); leave() }, nil
}

// Busy returns how many tenants' prompts are fetching, or waiting to.
func (f *Fetcher) Busy() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.tenants)
}

// close deletes the files, and ends the turn.
func (t *fetching) close() {
	t.cancel()
	for _, file := range t.known {
		file.Close()
	}
	t.end()
}

// fetchError says what is wrong with a URL. It does not quote the URL.
type fetchError struct{ reason string }

func (e *fetchError) Error() string { return e.reason }

// fetch reads the file behind a URL. The error is a *fetchError for what the sender should be told;
// any other is the hub's own.
func (t *fetching) fetch(link string) (*files.Fetched, error) {
	if file := t.known[link]; file != nil {
		return file, nil
	}
	file, err := t.get(link)
	var refused *egress.RefusedError
	switch {
	case err == nil:
		t.known[link] = file
		t.limit -= file.Size
		return file, nil
	case errors.Is(t.ctx.Err(), context.Canceled):
		// The client has hung up. Whatever broke because of that may have any name.
		return nil, t.ctx.Err()
	case errors.As(err, &refused):
		return nil, &fetchError{refused.Reason}
	case errors.Is(err, files.ErrTooLarge):
		return nil, &fetchError{fmt.Sprintf("the files behind a prompt's URLs may have %d bytes together", t.fetcher.settings().MaxUpload)}
	case errors.Is(err, files.ErrNoMedia):
		return nil, &fetchError{"the URL leads to no picture, video or sound of a known format"}
	case errors.Is(err, files.ErrStorage), errors.Is(err, budget.ErrFull):
		return nil, err
	case t.ctx.Err() != nil:
		return nil, &fetchError{fmt.Sprintf("the URL could not be fetched within %v", fetchTimeout)}
	}
	if answered, ok := errors.AsType[*egress.StatusError](err); ok {
		return nil, &fetchError{fmt.Sprintf("the URL was answered with status %d", answered.Status)}
	}
	return nil, &fetchError{"the URL cannot be fetched"}
}

func (t *fetching) get(link string) (*files.Fetched, error) {
	body, length, err := t.client.Get(t.ctx, link, "image/*, video/*, audio/*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	if t.limit <= 0 || length > t.limit {
		return nil, files.ErrTooLarge
	}
	return t.fetcher.store.Fetch(t.ctx, body, t.limit)
}

// checkLink reports what is wrong with a URL before anything is fetched.
func checkLink(h egress.Hosts, link string) error {
	if len(link) > MaxURL {
		return &fetchError{fmt.Sprintf("a URL can have %d bytes", MaxURL)}
	}
	u, err := url.Parse(link)
	if err != nil || strings.ContainsAny(link, " \t\r\n") {
		return &fetchError{"the URL is not valid"}
	}
	return h.Check(u)
}
