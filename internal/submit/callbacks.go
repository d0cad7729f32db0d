package submit

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/callbacks"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/refusal"
)

// maxCallbackURL is the longest URL of a callback, in bytes. It is stored with the job.
const maxCallbackURL = 2048

// MaxCallbacks is how many callbacks are listed at once.
const MaxCallbacks = 500

// ErrNoCallback is the error of [Callbacks.Replay] for a callback that does not exist or belongs to
// somebody else.
var ErrNoCallback = errors.New("hub: no such callback")

// Callback says where a job's events go, and which of them.
type Callback queue.Callback

// WaitingCallback is an event that has not been delivered yet, or was given up.
type WaitingCallback = queue.WaitingCallback

// callbackEvents are the events that can be asked for, and defaultWithEnds those of a job that does
// not say.
var (
	callbackEvents  = []string{queue.EventQueued, queue.EventStarted, queue.EventProgress, queue.EventDone, queue.EventFailed, queue.EventCancelled}
	defaultWithEnds = callbackEvents[3:]
)

// ReadCallback reads callback_url and callback_events from an object, which may be nil. It returns
// nil if there is none; the error is a *[refusal.Refusal].
func ReadCallback(o *pyjson.Object) (*Callback, error) {
	link, has := o.Get("callback_url")
	list, lists := o.Get("callback_events")
	switch {
	case !has && lists:
		return nil, refusal.Callback("callback_events: there is no callback_url")
	case !has:
		return nil, nil
	}
	text, ok := link.(pyjson.String)
	if !ok {
		return nil, refusal.Callback("callback_url: must be a text")
	}
	c := &Callback{URL: string(text), Events: defaultWithEnds}
	if !lists {
		return c, nil
	}
	wrong := refusal.Callback("callback_events: must be a list with one or more of " + strings.Join(callbackEvents, ", "))
	events, _ := list.(pyjson.Array)
	if len(events) == 0 || len(events) > len(callbackEvents) {
		return nil, wrong
	}
	c.Events = nil
	for _, e := range events {
		name, _ := e.(pyjson.String)
		if !slices.Contains(callbackEvents, string(name)) {
			return nil, wrong
		}
		c.Events = append(c.Events, string(name))
	}
	return c, nil
}

// WithoutCallback returns extra_data without the callback in its member comfyhub: neither an
// instance nor the history needs it, and the URL may contain a secret.
func WithoutCallback(extra []byte, comfyhub *pyjson.Object) []byte {
	if comfyhub == nil || !comfyhub.Has("callback_url") {
		return extra
	}
	rest := pyjson.NewObject()
	for name, value := range comfyhub.All() {
		if name != "callback_url" && name != "callback_events" {
			rest.Set(name, value)
		}
	}
	return withMember(extra, "comfyhub", rest)
}

// parts returns what makes two jobs with different callbacks different.
func (c *Callback) parts() [][]byte {
	if c == nil {
		return nil
	}
	return [][]byte{[]byte(c.URL), []byte(strings.Join(c.Events, " "))}
}

// Callbacks are the callbacks of all jobs.
type Callbacks struct {
	queue    *queue.Queue
	settings func() *config.Settings
	sender   *callbacks.Sender
	Options  egress.Options // for tests
}

// NewCallbacks makes the callbacks. shown is a reason as a tenant sees it: it contains no addresses
// of instances.
func NewCallbacks(q *queue.Queue, settings func() *config.Settings, shown func(reason string) string, log func() *slog.Logger) *Callbacks {
	c := &Callbacks{queue: q, settings: settings}
	c.sender = callbacks.New(callbacks.Options{
		Queue: q, Log: log, Shown: shown,
		Settings: func() callbacks.Settings {
			s := settings()
			return callbacks.Settings{Hosts: s.CallbackHosts, Secrets: s.CallbackSecrets}
		},
		Egress: func() egress.Options { return c.Options },
	})
	return c
}

// Run sends callbacks until ctx ends.
func (c *Callbacks) Run(ctx context.Context) { c.sender.Run(ctx) }

// On reports whether jobs can have callbacks.
func (c *Callbacks) On() bool {
	s := c.settings()
	return !s.CallbackHosts.Empty() && len(s.CallbackSecrets) > 0
}

// check reports what is wrong with a callback, if there is one. The error is a
// *[refusal.Refusal].
func (c *Callbacks) check(with *Callback) error {
	if with == nil {
		return nil
	}
	if !c.On() {
		return refusal.Callback("callback_url: this hub has no callbacks")
	}
	if len(with.URL) > maxCallbackURL {
		return refusal.Callback("callback_url: may have " + strconv.Itoa(maxCallbackURL) + " bytes")
	}
	u, err := url.Parse(with.URL)
	if err != nil || u.Fragment != "" {
		return refusal.Callback("callback_url: must be a URL")
	}
	var refused *egress.RefusedError
	if err := c.settings().CallbackHosts.Check(u); errors.As(err, &refused) {
		return refusal.Callback("callback_url: " + refused.Reason)
	}
	return nil
}

// Secret returns what a tenant's callbacks are signed with; "" if there are none.
func (c *Callbacks) Secret(tenant string) string {
	if !c.On() {
		return ""
	}
	return callbacks.SecretOf(c.settings().CallbackSecrets[0], tenant)
}

// scope returns whose callbacks a viewer may see: one tenant's, or everybody's with "". The URLs
// may contain secrets, so only those who may speak for every tenant see all.
func (c *Callbacks) scope(v job.Viewer) string {
	if v.Trusted && !v.Login {
		return ""
	}
	return v.Tenant
}

// Waiting returns the callbacks that a viewer may see and that have not been delivered yet: the
// next one of each job.
func (c *Callbacks) Waiting(ctx context.Context, v job.Viewer) ([]WaitingCallback, error) {
	return c.queue.WaitingCallbacks(ctx, c.scope(v), MaxCallbacks)
}

// Dead returns those that were given up, the latest first.
func (c *Callbacks) Dead(ctx context.Context, v job.Viewer) ([]WaitingCallback, error) {
	return c.queue.DeadCallbacks(ctx, c.scope(v), MaxCallbacks)
}

// Replay resends one that was given up. The error is [ErrNoCallback], or one of Redis.
func (c *Callbacks) Replay(ctx context.Context, v job.Viewer, id string) error {
	err := c.queue.ReplayCallback(ctx, c.scope(v), id)
	if errors.Is(err, queue.ErrNotFound) {
		return ErrNoCallback
	}
	return err
}
