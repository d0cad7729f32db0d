// Package bridge assembles the parts: messages are stored, handled in order, and
// answered, by one of possibly several processes.
//
// # What happens to a message
//
//  1. A platform delivers it (telegram: poll or webhook). It is stored with its
//     id before the platform forgets it, so that a duplicate is recognized.
//  2. The leading process reads it (inbox.go): chats are handled concurrently,
//     the messages of each chat in order.
//  3. Package conversation answers. A command that makes a picture becomes a
//     request, which is stored under an id made from the message's.
//  4. Package request sends the request to the hub, follows it, and delivers
//     the result; each step is recorded before it is taken.
//  5. Package outbox sends everything at the platform's pace.
//
// Only the leading process (lead.go) does 2 to 5. Its writes carry its term, so
// that a process that was deposed without knowing it cannot change anything.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/botbridge/internal/config"
	"github.com/comfyhub/comfyhub/botbridge/internal/conversation"
	"github.com/comfyhub/comfyhub/botbridge/internal/enhance"
	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// Bridge is one process of the bridge.
type Bridge struct {
	log         *slog.Logger
	http        *http.Transport
	owner       string
	listen      string
	store       *state.Store
	hub         *hubapi.Client
	out         *outbox.Outbox
	runner      *request.Runner
	talk        *conversation.Talk
	guard       *limits.Guard
	enhance     *enhance.Client      // nil: nobody is asked for better words
	transcriber *enhance.Transcriber // nil: nobody listens to voice messages
	texts       *locale.Bundle
	platforms   map[string]platform.Platform
	metrics     *metrics

	leads     atomic.Bool
	instances atomic.Int64
	hubSeen   atomic.Int64

	mu      sync.Mutex
	excused map[string]bool // chats that know that Redis is unavailable
	// declined are the chats that know that messages are left out, and since when.
	declined map[string]time.Time
}

// closer is a platform with connections to drop.
type closer interface{ Close() }

// Dial connects to whatever the bridge calls: the hub, chat services, Redis. nil: over TCP.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// transport makes HTTP connections. A hook that looks at prompts is called over TCP in any case.
func (d Dial) transport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if d != nil {
		transport.DialContext = d
	}
	return transport
}

// New returns a bridge with its configuration. It does not connect to anything that
// may be unavailable; an embedded Redis is started.
func New(ctx context.Context, c *config.Config, log *slog.Logger, dial Dial) (*Bridge, error) {
	b := &Bridge{log: log, http: dial.transport(), owner: uuid.NewString(), listen: c.Listen, platforms: map[string]platform.Platform{}, excused: map[string]bool{}, declined: map[string]time.Time{}}
	b.instances.Store(1)
	b.metrics = newMetrics(b)
	commands, err := c.Bind()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(sellProblems(c, commands)...); err != nil {
		return nil, err
	}
	if b.texts, err = locale.Load(c.LocaleFolder()); err != nil {
		return nil, err
	}
	key, err := c.HubKey.Read(c.Folder)
	if err != nil {
		return nil, fmt.Errorf("hub_key: %w", err)
	}
	if b.hub, err = hubapi.New(c.Hub, hubapi.Options{Key: key, HTTP: b.http}); err != nil {
		return nil, err
	}
	if err := b.addPlatforms(c, commands); err != nil {
		return nil, err
	}
	b.store, err = state.Open(ctx, state.Place{URL: c.Redis, Dir: c.Data, Prefix: c.Prefix, Logger: log, Dial: dial}, state.Options{})
	if err != nil {
		return nil, err
	}
	if b.store.Alone() {
		// The folder is locked, so a former leader has ended: there is no lease to
		// wait for.
		b.owner = "alone"
	}
	if err := b.wire(c, commands); err != nil {
		_ = b.store.Close()
		return nil, err
	}
	return b, nil
}

// wire creates the parts that depend on the state.
func (b *Bridge) wire(c *config.Config, commands []*workflow.Command) error {
	guard, err := limits.New(c.Limits, b.store)
	if err != nil {
		return err
	}
	byName, upscale, vary := map[string]*workflow.Command{}, "", ""
	for _, command := range commands {
		byName[command.Name] = command
		if command.Spec.Upscales && command.FromOne() {
			upscale = command.Name
		}
		if command.Spec.Varies && command.FromOne() {
			vary = command.Name
		}
	}
	b.guard = guard
	var better *conversation.Enhance
	if c.Enhance != nil {
		o, err := c.Enhance.Options(c.Folder)
		if err != nil {
			return err
		}
		o.Observe, o.HTTP = b.metrics.enhanced, b.http
		b.enhance = enhance.New(o)
		better = &conversation.Enhance{Client: b.enhance, PerDay: c.Enhance.Daily(), Translate: c.Enhance.Translate}
	}
	var listener *conversation.Listener
	if c.Transcribe != nil {
		o, err := c.Transcribe.Options(c.Folder)
		if err != nil {
			return err
		}
		o.Observe, o.HTTP = b.metrics.enhanced, b.http
		b.transcriber = enhance.NewTranscriber(o)
		listener = &conversation.Listener{Client: b.transcriber, PerDay: c.Transcribe.Daily()}
	}
	var judge request.Judge
	if c.Results != nil {
		judge = b.judge(limits.NewJudge(*c.Results, b.http))
	}
	var terms *conversation.Terms
	if c.Terms != nil {
		texts, version, err := c.Terms.Read(c.Folder)
		if err != nil {
			return err
		}
		terms = &conversation.Terms{Texts: texts, Version: version}
	}
	find := func(name string) platform.Platform { return b.platforms[name] }
	b.out = outbox.New(outbox.Options{Logger: b.log, Observe: b.metrics.sent, Moved: b.moved})
	b.runner = request.NewRunner(request.Options{
		Store: b.store, Hub: b.hub, Outbox: b.out, Texts: b.texts, Platform: find,
		Command: func(name string) *workflow.Command { return byName[name] }, Upscale: upscale, Vary: vary,
		InPlace: c.Delivery == "edit", Links: strings.TrimRight(c.FilesURL, "/"), Judge: judge, Observe: b.metrics.ended, Instances: func() int { return int(b.instances.Load()) }, Logger: b.log,
	})
	b.talk = conversation.New(conversation.Options{
		Store: b.store, Hub: b.hub, Outbox: b.out, Runner: b.runner, Guard: guard, Texts: b.texts, Platform: find,
		Commands: commands, Default: c.DefaultCommand,
		Edit: conversation.EditCommand(c.DefaultEditCommand, c.DefaultCommand, commands), Upscale: upscale, Vary: vary, Logger: b.log, Enhance: better, Listener: listener, Terms: terms,
		HelpURL: c.HelpURL,
		Contact: c.Contact(),
	})
	return nil
}

// Run serves until ctx ends. Unfinished requests stay in the state, for the next
// start or another process.
func (b *Bridge) Run(ctx context.Context) error {
	listener, err := net.Listen("tcp", b.listen)
	if err != nil {
		return err
	}
	return b.Serve(ctx, listener)
}

// Serve is Run with the caller's listener.
func (b *Bridge) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: b.handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	b.log.Info("the bridge is up", "listen", listener.Addr().String(), "platforms", len(b.platforms))

	var parts sync.WaitGroup
	parts.Go(func() { b.lead(ctx) })
	parts.Go(func() { b.watchHub(ctx) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		cancel()
	}
	parts.Wait()
	b.out.Close()
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	if b.leads.Load() {
		if err := b.store.Resign(closing, b.owner); err != nil {
			b.log.Warn("cannot tell the other processes that this one ends", "error", err)
		}
	}
	_ = server.Shutdown(closing)
	for _, p := range b.platforms {
		if c, ok := p.(closer); ok {
			c.Close()
		}
	}
	b.hub.Close()
	if b.transcriber != nil {
		b.transcriber.Close()
	}
	if b.enhance != nil {
		b.enhance.Close()
	}
	if closeErr := b.store.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("closing the state: %w", closeErr)
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// watchHub keeps track of the number of instances that can work.
func (b *Bridge) watchHub(ctx context.Context) {
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	said := false
	for {
		stats, err := b.hub.Stats(ctx)
		if err == nil {
			b.hubSeen.Store(time.Now().UnixNano())
			b.instances.Store(int64(max(1, stats.Instances["idle"]+stats.Instances["busy"])))
		}
		denied := b.hub.Denied()
		if denied != nil && !said {
			b.log.Error("the hub refuses the bridge: see hub and hub_key in bot.yaml; requests wait", "error", denied)
		}
		said = denied != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
