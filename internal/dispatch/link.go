package dispatch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// link is the hub's connection to one instance: a client, one persistent
// WebSocket, what the instance can run, and the run that it has.
type link struct {
	name   string
	url    string
	key    string // of its agent
	owner  string // the agent, or the instance itself where it has none
	client *comfyui.Client
	sid    string
	log    *slog.Logger
	stop   context.CancelFunc
	done   chan struct{}
	ask    *asking
	feed   *feed
	// overheard tells broadcasts from messages to one client.
	overheard overheard

	mu sync.Mutex
	// open says that the socket stands and the abilities are known.
	open bool
	// seen is when the instance was last heard or reached.
	seen    time.Time
	info    *catalog.Info
	version comfyui.Version
	current *run
	// freeSince is when the instance last became free.
	freeSince time.Time
	// lastClient is the client whose job ran here last, lastTenant its tenant.
	lastClient, lastTenant string
	// lastKey is the job that the instance finished last.
	lastKey string
	// refused are jobs that this instance refused, until its abilities are
	// read anew.
	refused map[string]bool
	// given are the prompt ids that the instance was given, see upstreamID.
	given map[string]bool
}

// openLink begins to keep a connection to an instance.
func (d *Dispatcher) openLink(ctx context.Context, i fleet.Instance, client *comfyui.Client) *link {
	ctx, stop := context.WithCancel(ctx)
	l := &link{
		name: i.Name, url: i.URL, key: i.Key, owner: cmp.Or(i.Agent, i.Name), client: client,
		// A fresh id for each link: an old socket of a former hub that closes
		// late must not silence this one.
		sid:     "comfyhub-" + uuid.NewString(),
		log:     d.log.With("instance", i.Name),
		stop:    stop,
		done:    make(chan struct{}),
		refused: map[string]bool{},
		ask:     newAsking(),
	}
	l.feed = &feed{
		client: client, sid: l.sid, log: l.log,
		up: func(ctx context.Context) error {
			if err := d.learn(ctx, l); err != nil {
				if ctx.Err() == nil {
					l.log.Warn("cannot read what the instance can run", "error", err)
				}
				return err
			}
			d.setConnected(l, client) // whoever finds it open finds its client, too
			l.setOpen(true)
			l.deliver(event{kind: socketUp})
			d.Wake()
			return nil
		},
		down: func(err error) {
			d.panels.dropOf(l)
			if l.setOpen(false) {
				l.log.Warn("instance connection lost", "error", err)
			}
			l.deliver(event{kind: socketDown, err: err})
			d.setConnected(l, nil)
			d.Wake()
		},
		frame: func(fr comfyui.Frame) {
			l.touch()
			if d.takeLog(l.name, fr) {
				return // of no run
			}
			l.overheard.note(fr)
			l.deliver(event{kind: frameArrived, frame: fr})
		},
	}
	go func() {
		defer close(l.done)
		l.feed.run(ctx)
	}()
	return l
}

// caughtUp waits until all has been read that the instance has sent so far.
func (l *link) caughtUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	return l.feed.caughtUp(ctx)
}

// close ends the connection and waits for it.
func (l *link) close() {
	l.stop()
	<-l.done
	l.client.Close()
}

func (l *link) setOpen(open bool) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = l.open != open
	l.open = open
	if open {
		l.seen, l.freeSince = time.Now(), time.Now()
		l.refused = map[string]bool{}
	}
	return changed
}

func (l *link) touch() {
	l.mu.Lock()
	l.seen = time.Now()
	l.mu.Unlock()
}

// deliver hands an event to the run that uses this link, if there is one.
func (l *link) deliver(e event) {
	l.mu.Lock()
	r := l.current
	l.mu.Unlock()
	if r != nil {
		r.mail.put(e)
	}
}

// attach makes a run the receiver of the instance's messages. It must come
// before the POST: frames of a run can arrive before the reply.
func (l *link) attach(r *run) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		return false
	}
	l.current = r
	return true
}

// detach frees the link; the instance may take another job. It reports
// whether the run had it.
func (l *link) detach(r *run) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != r {
		return false
	}
	l.current = nil
	l.freeSince = time.Now()
	if j := r.job(); j.Client != "" {
		l.lastClient, l.lastTenant = j.Client, j.Tenant
	}
	return true
}

// ended notes that the instance has finished a run: a report that still shows
// it is late.
func (l *link) ended(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastKey = key
}

// idleFor is how long the instance has been waiting for work.
func (l *link) idleFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.freeSince)
}

// capability is the instance's version.
func (l *link) capability() comfyui.Version {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.version
}

// maxRefused bounds the jobs that an instance is remembered to have refused;
// most of them have ended since.
const maxRefused = 1000

// refuse remembers that this instance does not take a job. When that is
// forgotten a job that still waits is refused once more.
func (l *link) refuse(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.refused) >= maxRefused {
		l.refused = map[string]bool{}
	}
	l.refused[key] = true
}

// learned stores which version the instance is.
func (l *link) learned(version comfyui.Version) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = version
}

// setInfo stores what the instance can run, see takeWhole and takePart.
func (l *link) setInfo(info *catalog.Info) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.info = info
}

// abilities are what the instance can run; nil while that is not known.
func (l *link) abilities() *catalog.Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.info
}

// idle describes the link to Pick; ok is false while it can take no job.
func (l *link) idle() (Idle, *catalog.Info, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open || l.current != nil || l.info == nil {
		return Idle{}, nil, false
	}
	refused := make(map[string]bool, len(l.refused))
	for key := range l.refused {
		refused[key] = true
	}
	return Idle{Name: l.name, LastClient: l.lastClient, Refused: refused}, l.info, true
}

// usable reports whether the fleet's last word on the instance lets it take a
// job. A report that still shows the run which this hub has just seen end is
// late, not a reason to wait.
func (l *link) usable(i fleet.Instance) bool {
	switch i.State {
	case fleet.Idle:
		return true
	case fleet.Busy:
		l.mu.Lock()
		defer l.mu.Unlock()
		return i.Report.Queue <= 1 && i.Report.Job != "" && i.Report.Job == l.lastKey
	default:
		return false
	}
}

// isOpen reports whether the instance can be asked.
func (l *link) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// running is the run that has the instance, or nil.
func (l *link) running() *run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// ranLast reports whether the client's job is the last here: what the
// instance has loaded is then that client's.
func (l *link) ranLast(tenant, client string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.current; r != nil {
		if j := r.job(); j.Tenant != tenant || j.Client != client {
			return false
		}
	}
	return l.lastTenant == tenant && l.lastClient == client
}

// refuses reports whether the instance has refused a job.
func (l *link) refuses(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused[key]
}

// forgive lets jobs try again that were refused before the instance changed.
func (l *link) forgive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = map[string]bool{}
}

// gone reports whether an error means that the instance's process is not
// there, rather than that the way to it is cut.
func gone(err error) bool { return errors.Is(err, comfyui.ErrGone) }
