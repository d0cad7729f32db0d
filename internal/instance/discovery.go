package instance

import (
	"context"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// Discovery finds out what the connected instances can run, and keeps that up to date.
type Discovery struct {
	fleet   *fleet.Registry
	library *catalog.Library
	roster  Roster
	learned func(instance string, info *catalog.Info, version comfyui.Version)
	age     func() time.Duration
	links   *Links
	above   Sink
	ctx     context.Context
	work    *panics.Group
	log     *slog.Logger
	// learning has a lane per agent, parsing one for all.
	learning, parsing lanes
	budget            *budget
}

// learn reads what an instance can run, each time the socket opens: it may be another process with
// other models.
func (dc *Discovery) learn(ctx context.Context, conn *Link) error {
	began := time.Now()
	info, hash := dc.recall(ctx, conn)
	recalled := info != nil
	if !recalled {
		var err error
		if info, hash, err = dc.read(ctx, conn); err != nil {
			return err
		}
	}
	if replaced, err := conn.Client.Get(ctx, "/node_replacements", nil); err == nil {
		if with, err := info.WithReplacements(replaced); err == nil {
			info = with
		}
	}
	conn.ask.Forget()
	if recalled {
		conn.takeRecalled(info, hash)
	} else {
		conn.takeWhole(dc.library, info, hash, began)
	}
	dc.learned(conn.Name, conn.Abilities(), conn.Capability())
	conn.Log.Info("instance connected", "version", conn.Capability().String(), "classes", info.Classes())
	return nil
}

// recall returns what was stored about an instance, if its agent says that this is still what it
// can run.
func (dc *Discovery) recall(ctx context.Context, conn *Link) (*catalog.Info, string) {
	i, known := dc.fleet.Instance(conn.Name)
	if dc.roster == nil || !known || !i.Reported() || i.Report.ObjectInfo == "" {
		return nil, ""
	}
	hash := i.Report.ObjectInfo
	info := dc.roster.Recall(ctx, hash)
	if info != nil {
		dc.roster.Recalled(conn.Name, conn.Capability(), hash)
	}
	return info, hash
}

// read returns what an instance can run, and the hash of the answer, which is large.
func (dc *Discovery) read(ctx context.Context, conn *Link) (*catalog.Info, string, error) {
	held := dc.turnOf(conn)
	defer func() { held.leave() }()
	body, hash, err := conn.Client.ObjectInfo(ctx, held.wait)
	if err != nil {
		return nil, "", err
	}
	done, err := dc.parsing.enter(ctx, "")
	if err != nil {
		return nil, "", err
	}
	defer done()
	info, err := dc.library.Parse(body)
	if err == nil && dc.roster != nil {
		dc.roster.Keep(conn.Name, conn.Capability(), hash, body)
	}
	return info, hash, err
}

// Doubt notes that an instance may have changed, because a client called one of its own routes. The
// next client that asks what it offers makes the hub read that again.
func (dc *Discovery) Doubt(instance *comfyui.Client) {
	for _, conn := range dc.links.Open() {
		if conn.Client == instance {
			conn.ask.doubt()
		}
	}
}

// Relearn reads again what an instance can run, because its agent says that this has changed. It
// does not wait.
func (dc *Discovery) Relearn(instance string) {
	conn := dc.links.Get(instance)
	if conn == nil || !conn.IsOpen() {
		return // it is read on connecting anyway
	}
	conn.ask.doubt()
	if q, mine := conn.ask.wholeSince(time.Now(), 0); mine {
		dc.work.Go(conn.Log, "reading what an instance can run", func() { dc.reread(conn, q) })
	}
}

// reread reads again everything that an instance can run.
func (dc *Discovery) reread(conn *Link, q *question) {
	ctx, cancel := context.WithTimeout(dc.ctx, wholeTimeout)
	defer cancel()
	retry.Sleep(ctx, time.Until(q.from))
	err := panics.Do(conn.Log, "reading what an instance can run", func() error { return dc.readAgain(ctx, conn) })
	if err != nil && dc.ctx.Err() == nil {
		conn.Log.Warn("cannot read what the instance can run", "error", err)
	}
	conn.ask.settle(q, "", err)
}

func (dc *Discovery) readAgain(ctx context.Context, conn *Link) error {
	began := time.Now()
	info, hash, err := dc.read(ctx, conn)
	if err != nil {
		return err
	}
	if before := conn.Abilities(); before != nil {
		info = info.ReplacingLike(before)
	}
	if conn.takeWhole(dc.library, info, hash, began) {
		dc.changed(conn)
	}
	return nil
}

// changed tells everybody what an instance can run now, if the connection is still the current one.
func (dc *Discovery) changed(conn *Link) {
	if dc.links.Get(conn.Name) != conn {
		return
	}
	dc.learned(conn.Name, conn.Abilities(), conn.Capability())
	conn.Refused.forget()
	dc.above.Wake()
}

// turn is the right to hold the large answers of an agent's instances in memory, one at a time. It
// is taken only when an answer starts to arrive: the instances of one machine work out their
// answers side by side.
type turn struct {
	wait  func(context.Context) error
	leave func()
}

func (dc *Discovery) turnOf(conn *Link) turn {
	leave := func() {}
	return turn{
		wait: func(ctx context.Context) (err error) {
			got, err := dc.learning.enter(ctx, conn.owner)
			if err == nil {
				leave = got
			}
			return err
		},
		leave: func() { leave() },
	}
}
