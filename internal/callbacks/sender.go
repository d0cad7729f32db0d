package callbacks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// Bounds of sending, of one hub.
const (
	maxSending  = 32
	maxOfTenant = 4
	maxOfHost   = 8
	sendTimeout = 15 * time.Second
	// progressTimeout is shorter: what comes after waits for it.
	progressTimeout = 5 * time.Second
	// sendFor is how long an event is tried.
	sendFor = 24 * time.Hour
	// The pauses between attempts, before the jitter.
	firstPause = 5 * time.Second
	mostPause  = time.Hour
	// settleTimeout bounds noting what has become of an event.
	settleTimeout = 10 * time.Second
)

// Queue keeps the events. *queue.Queue is one.
type Queue interface {
	TakeCallbacks(ctx context.Context, bound int, skip []string) ([]queue.TakenCallback, error)
	Delivered(ctx context.Context, t queue.TakenCallback) error
	RetryCallback(ctx context.Context, t queue.TakenCallback, pause time.Duration, why string) error
	PutOffCallback(ctx context.Context, t queue.TakenCallback, pause time.Duration) error
	BuryCallback(ctx context.Context, t queue.TakenCallback, why string) error
}

// Settings may change while a Sender runs.
type Settings struct {
	// Hosts may be called. Without any, nothing is sent.
	Hosts egress.Hosts
	// Secrets are the operator's. Each signs, so that one can be replaced by another.
	Secrets []string
}

// Options of a Sender.
type Options struct {
	Queue    Queue
	Settings func() Settings
	Log      func() *slog.Logger
	// Shown is the reason of a failure as a tenant may see it.
	Shown func(reason string) string
	// Egress is how hosts are called. Default: its zero value.
	Egress func() egress.Options
	// Every is how often it looks for what is due. Default: half a second.
	Every time.Duration
}

// Sender sends what is due.
type Sender struct {
	o Options
	// ended signals that there is room for another one.
	ended   chan struct{}
	sending panics.Group

	mu      sync.Mutex
	all     int
	tenants map[string]int
	hosts   map[string]int
}

// New returns a Sender.
func New(o Options) *Sender {
	if o.Egress == nil {
		o.Egress = func() egress.Options { return egress.Options{} }
	}
	o.Every = cmp.Or(o.Every, 500*time.Millisecond)
	return &Sender{o: o, ended: make(chan struct{}, 1), tenants: map[string]int{}, hosts: map[string]int{}}
}

// Run sends until the context ends, and returns once nothing is being sent.
func (s *Sender) Run(ctx context.Context) {
	defer s.sending.Wait()
	tick := time.NewTicker(s.o.Every)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-tick.C:
		case <-s.ended:
		case <-ctx.Done():
			return
		}
		err := s.send(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			s.o.Log().Warn("cannot list due callbacks", "error", err)
		}
		failed = err != nil
	}
}

// send begins to send what is due and finds room.
func (s *Sender) send(ctx context.Context) error {
	settings := s.o.Settings()
	if settings.Hosts.Empty() || len(settings.Secrets) == 0 {
		return nil
	}
	client := egress.NewClient(settings.Hosts, s.o.Egress())
	for {
		room, busy := s.room()
		if room == 0 {
			return nil
		}
		taken, err := s.o.Queue.TakeCallbacks(ctx, room, busy)
		if err != nil || len(taken) == 0 {
			return err
		}
		for _, t := range taken {
			s.begin(ctx, client, settings, t)
		}
	}
}

// room returns how many may be sent besides, and the tenants that have their share.
func (s *Sender) room() (room int, busy []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tenant, n := range s.tenants {
		if n >= maxOfTenant {
			busy = append(busy, tenant)
		}
	}
	return maxSending - s.all, busy
}

// begin sends an event in the background, unless its host has enough to do.
func (s *Sender) begin(ctx context.Context, client *egress.Client, settings Settings, t queue.TakenCallback) {
	host := hostOf(t.URL)
	s.mu.Lock()
	crowded := s.hosts[host] >= maxOfHost
	s.all++
	s.tenants[t.Tenant]++
	if !crowded {
		s.hosts[host]++
	}
	s.mu.Unlock()
	s.sending.Go(s.o.Log(), "sending a callback", func() {
		defer func() {
			s.mu.Lock()
			s.all--
			drop(s.tenants, t.Tenant)
			if !crowded {
				drop(s.hosts, host)
			}
			s.mu.Unlock()
			select {
			case s.ended <- struct{}{}:
			default:
			}
		}()
		s.deliver(ctx, client, settings, t, crowded)
	})
}

func drop(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

func hostOf(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return ""
	}
	return u.Host
}

// deliver sends an event, and notes what has become of it.
func (s *Sender) deliver(ctx context.Context, client *egress.Client, settings Settings, t queue.TakenCallback, crowded bool) {
	var outcome func(ctx context.Context) error
	if crowded {
		outcome = func(ctx context.Context) error { return s.o.Queue.PutOffCallback(ctx, t, jittered(2*time.Second)) }
	} else {
		outcome = s.try(ctx, client, settings, t)
	}
	// Also when the hub ends: another one goes on at once.
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err := outcome(settle); err != nil && !errors.Is(err, queue.ErrStale) {
		s.o.Log().Debug("cannot record the outcome of a callback", "event", t.ID, "error", err)
	}
}

// try sends an event once, and returns how to note what has become of it.
func (s *Sender) try(ctx context.Context, client *egress.Client, settings Settings, t queue.TakenCallback) func(ctx context.Context) error {
	t.Reason = s.o.Shown(t.Reason)
	status, err := post(ctx, client, settings, t)
	why := reasonOf(status, err)
	pause := pauseAfter(t.Attempts)
	return func(settle context.Context) error {
		switch {
		case err == nil && status >= 200 && status < 300:
			return s.o.Queue.Delivered(settle, t)
		case err != nil && ctx.Err() != nil: // the hub ends
			return s.o.Queue.PutOffCallback(settle, t, 0)
		case status == http.StatusGone || t.Age+pause > sendFor:
			s.o.Log().Info("a callback could not be delivered", "event", t.ID, "tenant", t.Tenant, "reason", why)
			return s.o.Queue.BuryCallback(settle, t, why)
		}
		return s.o.Queue.RetryCallback(settle, t, pause, why)
	}
}

func post(ctx context.Context, client *egress.Client, settings Settings, t queue.TakenCallback) (status int, err error) {
	body, err := bodyOf(t.CallbackEvent)
	if err != nil {
		return 0, err
	}
	header, err := headerOf(settings.Secrets, t.CallbackEvent, body, time.Now())
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(t))
	defer cancel()
	return client.Post(ctx, t.URL, header, body)
}

// timeoutOf is how long a receiver may take to answer an event.
func timeoutOf(t queue.TakenCallback) time.Duration {
	if t.Name == queue.EventProgress {
		return progressTimeout
	}
	return sendTimeout
}

// reasonOf says why an event did not arrive. It tells nothing of the hub's network, since
// the tenant reads it.
func reasonOf(status int, err error) string {
	var refused *egress.RefusedError
	switch {
	case err == nil:
		return "answered with status " + strconv.Itoa(status)
	case errors.As(err, &refused):
		return refused.Reason
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return "the connection failed"
}

// pauseAfter is the pause after an attempt that so many before it failed.
func pauseAfter(attempts int) time.Duration {
	return jittered(min(firstPause<<min(attempts, 16), mostPause))
}

// jittered is a time between half of d and one and a half times d.
func jittered(d time.Duration) time.Duration {
	return d/2 + rand.N(d)
}
