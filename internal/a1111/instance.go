package a1111

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// Options describe an [Instance].
type Options struct {
	// Dir is a folder for the files of its jobs, of its own.
	Dir string
	// Logger gets a line at each coming and going. Default: none.
	Logger *slog.Logger
	// Every is the pause between two looks at what the server does. Default: 1 s.
	Every time.Duration
	// Dial connects to the server. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	defaultEvery = time.Second
	// A server that is away is looked for after pauses between these.
	firstPause, mostPause = 200 * time.Millisecond, 5 * time.Second
)

// Instance presents an A1111 server as a ComfyUI server, for as long as it answers: while it
// does not, connections are refused. It is safe for concurrent use.
type Instance struct {
	o      Options
	client *client
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu sync.Mutex
	// server is nil while the A1111 server does not answer.
	server *facade.Server
}

// Open begins to look for the server at an address.
func Open(address string, o Options) (*Instance, error) {
	c, err := newClient(address, o.Dial)
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Every == 0 {
		o.Every = defaultEvery
	}
	ctx, stop := context.WithCancel(context.Background())
	i := &Instance{o: o, client: c, stop: stop}
	i.work.Go(func() { i.run(ctx) })
	return i, nil
}

// Close ends the instance as if its machine had died. What it runs is interrupted.
func (i *Instance) Close() {
	i.stop()
	i.work.Wait()
	i.client.close()
}

// Dial connects to the facade, whatever the address.
func (i *Instance) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	i.mu.Lock()
	server := i.server
	i.mu.Unlock()
	if server == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return server.Dial(ctx, network, address)
}

// run lives one life of the server after the other.
func (i *Instance) run(ctx context.Context) {
	pauses := retry.New(firstPause, mostPause)
	told := ""
	for ctx.Err() == nil {
		lived, err := i.live(ctx)
		if ctx.Err() != nil {
			return
		}
		if lived {
			pauses.Reset()
		}
		if lived || told != err.Error() {
			told = err.Error()
			i.o.Logger.Warn("A1111 is not reachable", "reason", err)
		}
		pauses.Wait(ctx)
	}
}

// live presents the server until it does not answer any more.
func (i *Instance) live(ctx context.Context) (lived bool, err error) {
	can, err := i.client.abilities(ctx)
	var refused *statusError
	if errors.As(err, &refused) && refused.status == 404 {
		err = errors.New("it has no /sdapi/v1: was it started with --api?")
	}
	if err != nil {
		return false, err
	}
	l := newLife(i.client, i.o, can)
	if l.server, err = facade.New(l, i.o.Dir); err != nil {
		return false, err
	}
	_, _ = l.settingsBetween(ctx) // before the first request may change them
	i.set(l.server)
	i.o.Logger.Info("A1111 is there")
	err = l.watch(ctx)
	i.set(nil)
	l.end()
	l.server.Close()
	return true, err
}

func (i *Instance) set(server *facade.Server) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.server = server
}
