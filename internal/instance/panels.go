package instance

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/stream"
)

const (
	// maxTenantPanels and maxPanels bound the sockets to instances for single clients, per tenant
	// and in all. A tenant's least recently used one gives way.
	maxTenantPanels = 64
	maxPanels       = 512
	// panelIdle is how long such a socket stays open without a call or a message.
	panelIdle = 15 * time.Minute
	// panelPatience is how long a call waits for the socket to open.
	panelPatience = 2 * time.Second
	// panelBacklog is how many messages of such a socket may be waiting; further ones are dropped.
	panelBacklog = 256
)

// panel is a client's own socket to an instance. Routes of custom nodes answer with messages to the
// client id named in the call. Messages of runs do not come over it but over the connection.
type panel struct {
	conn   *Link
	key    stream.Key
	alias  comfyui.Alias
	cancel context.CancelFunc
	opened chan struct{} // closed when it is open or has failed
	ok     bool          // set before opened is closed
	used   time.Time     // guarded by panels.mu
	heard  hearing
}

// Panels holds the panels of all connections.
type Panels struct {
	links   *Links
	streams interface {
		Pass(ctx context.Context, k stream.Key, m stream.Message)
	}
	ctx  context.Context
	work *panics.Group

	mu  sync.Mutex
	all map[*panel]struct{}
}

// Introduce opens a socket on which an instance can reach one client, unless there is one already.
// The alias is the client's id at the instance; ok is false if the instance cannot be reached or
// other tenants have all the sockets.
func (ps *Panels) Introduce(ctx context.Context, to *comfyui.Client, k stream.Key) (alias comfyui.Alias, ok bool) {
	conn := ps.links.of(to)
	if conn == nil || ps.ctx.Err() != nil {
		return comfyui.Alias{}, false
	}
	p := ps.open(conn, k)
	if p == nil {
		return comfyui.Alias{}, false
	}
	late := time.NewTimer(panelPatience)
	defer late.Stop()
	select {
	case <-p.opened:
		return p.alias, p.ok
	case <-late.C:
	case <-ctx.Done():
	}
	return comfyui.Alias{}, false
}

// open finds or opens a client's panel at an instance.
func (ps *Panels) open(conn *Link, k stream.Key) *panel {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var oldest *panel
	own := 0
	for p := range ps.all {
		if p.conn == conn && p.key == k {
			p.used = time.Now()
			return p
		}
		if p.key.Tenant != k.Tenant {
			continue
		}
		own++
		if oldest == nil || p.used.Before(oldest.used) {
			oldest = p
		}
	}
	if own >= maxTenantPanels || own > 0 && len(ps.all) >= maxPanels {
		ps.dropLocked(oldest)
	}
	if len(ps.all) >= maxPanels {
		return nil
	}
	ctx, cancel := context.WithCancel(ps.ctx)
	p := &panel{
		conn: conn, key: k, cancel: cancel, opened: make(chan struct{}), used: time.Now(),
		// A fresh id each time: an old socket that closes late must not silence this one, and
		// nobody else can name it.
		heard: conn.overheard.listen(),
		alias: comfyui.Alias{Client: k.Client, Upstream: strings.ReplaceAll(uuid.NewString(), "-", "")},
	}
	if ps.all == nil {
		ps.all = map[*panel]struct{}{}
	}
	ps.all[p] = struct{}{}
	ps.work.Go(conn.Log, "serving a client's socket", func() {
		defer ps.drop(p)
		p.serve(ctx, ps)
	})
	return p
}

func (ps *Panels) drop(p *panel) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.dropLocked(p)
}

func (ps *Panels) dropLocked(p *panel) {
	if _, stands := ps.all[p]; !stands {
		return
	}
	delete(ps.all, p)
	p.conn.overheard.unlisten()
	p.cancel()
}

// dropOf closes the panels of a connection whose own socket was lost or reopened: broadcasts arrive
// there first only while it is the older socket.
func (ps *Panels) dropOf(conn *Link) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p := range ps.all {
		if p.conn == conn {
			ps.dropLocked(p)
		}
	}
}

// touch notes a use and reports whether the panel is still there.
func (ps *Panels) touch(p *panel) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	_, stands := ps.all[p]
	p.used = time.Now()
	return stands
}

// idle returns how long a panel has not been used.
func (ps *Panels) idle(p *panel) time.Duration {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return time.Since(p.used)
}

// serve passes on what arrives, until the socket is lost or nobody uses it.
func (p *panel) serve(ctx context.Context, ps *Panels) {
	opening, cancel := context.WithTimeout(ctx, panelPatience)
	socket, err := p.conn.Client.Dial(opening, p.alias.Upstream)
	cancel()
	if err != nil {
		p.conn.Log.Debug("cannot open a socket for a client", "error", err)
		close(p.opened)
		return
	}
	defer socket.Close()
	// The server knows the socket once it has sent its first frame.
	if _, err = socket.Next(ctx); err == nil {
		p.ok = true
	}
	close(p.opened)
	frames := make(chan arrived, panelBacklog)
	var passing panics.Group
	defer passing.Wait()
	defer close(frames)
	passing.Go(p.conn.Log, "passing messages to a client", func() { p.pass(ctx, ps, frames) })
	stop := p.watchIdle(ps)
	defer stop()
	for {
		frame, err := socket.Next(ctx)
		if err != nil {
			return
		}
		if !isCustom(frame) {
			continue // about runs, or sent to all sockets
		}
		select {
		case frames <- arrived{frame, time.Now()}:
		default: // the instance must not wait
		}
	}
}

// watchIdle closes the panel when it has not been used for a while.
func (p *panel) watchIdle(ps *Panels) (stop func()) {
	tick := time.NewTicker(panelIdle / 4)
	done := make(chan struct{})
	ps.work.Go(p.conn.Log, "watching a client's socket", func() {
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if ps.idle(p) >= panelIdle {
					ps.drop(p)
				}
			}
		}
	})
	return func() { close(done) }
}

// pass gives the client what was sent to it alone.
func (p *panel) pass(ctx context.Context, ps *Panels, frames <-chan arrived) {
	for frame := range frames {
		// A broadcast is sent to the connection's socket first, as that is older.
		// It has arrived there once a ping that is sent now is answered.
		if p.conn.CaughtUp(ctx) != nil || p.conn.overheard.broadcast(frame, &p.heard) || !ps.touch(p) {
			continue
		}
		data := frame.Data
		if !frame.Binary {
			data = p.alias.Outside(data)
		}
		ps.streams.Pass(ctx, p.key, stream.Message{Binary: frame.Binary, Data: data})
	}
}

// isCustom reports whether a frame is one that only custom nodes send.
func isCustom(f comfyui.Frame) bool {
	if f.Binary {
		b, ok := comfyui.ParseBinary(f.Data)
		return ok && b.Event > comfyui.EventPreviewMetadata
	}
	m, ok := comfyui.ParseMessage(f.Data)
	return ok && m.IsCustom()
}
