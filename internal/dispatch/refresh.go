package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// wholeTimeout and partTimeout bound a question. Whoever asked stops waiting sooner, see
	// asking.
	wholeTimeout = 5 * time.Minute
	partTimeout  = 30 * time.Second
	// maxParts is how many classes are asked for one by one; beyond that, asking for everything is
	// cheaper.
	maxParts = 8
)

// Refresh makes sure that nothing known about what the connected instances can run is older than
// Settings.CatalogAge. It asks all instances at once and waits for those that answer in the time
// they usually take; what the others say is taken in when it comes. It returns early when ctx ends.
func (d *Dispatcher) Refresh(ctx context.Context) {
	if d.ctx.Err() != nil {
		return
	}
	now := time.Now()
	age := d.settings().CatalogAge
	for range 2 { // a reading that was already under way can be too old
		var waits []*question
		for _, conn := range d.connected() {
			q, mine := conn.ask.wholeSince(now, age)
			if mine {
				d.work.Go(conn.log, "reading what an instance can run", func() { d.reread(conn, q) })
			}
			if q != nil {
				waits = append(waits, q)
			}
		}
		if len(waits) == 0 || !await(ctx, waits) {
			return
		}
	}
}

// AskClasses asks the connected instances that have the classes what they offer there, unless that
// was asked at asOf or later, and waits as Refresh does. Busy instances are asked too. curious says
// that nobody is refused if nothing is asked. What a class may cost the instances is bounded;
// beyond that, and for many classes, it does what Refresh does.
func (d *Dispatcher) AskClasses(ctx context.Context, classes []string, asOf time.Time, curious bool) {
	if len(classes) > maxParts {
		if !curious {
			d.Refresh(ctx)
		}
		return
	}
	if d.ctx.Err() != nil {
		return
	}
	spent := false
	for range 2 {
		var waits []*question
		for _, class := range classes {
			allowed := sync.OnceValue(func() bool {
				ok := d.budget.take(class, time.Now(), curious)
				spent = spent || !ok
				return ok
			})
			for _, conn := range d.connected() {
				if info := conn.abilities(); info == nil || !info.Has(class) {
					continue
				}
				q, mine := conn.ask.partSince(class, asOf, allowed)
				if mine {
					d.work.Go(conn.log, "asking about a class", func() { d.askClass(conn, class, q) })
				}
				if q != nil {
					waits = append(waits, q)
				}
			}
		}
		if len(waits) == 0 || !await(ctx, waits) {
			break
		}
	}
	if spent && !curious {
		d.Refresh(ctx)
	}
}

// await waits for questions, each for as long as it is worth it, and reports whether all of them
// have ended.
func await(ctx context.Context, waits []*question) (all bool) {
	all = true
	for _, q := range waits {
		timer := time.NewTimer(time.Until(q.until))
		select {
		case <-q.done:
		case <-timer.C:
			all = false
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
	return all
}

// learnFrom asks about the classes for which an instance has refused a prompt because a value is
// not in any of its lists: the file was there and no longer is. It does not wait.
func (d *Dispatcher) learnFrom(refused *comfyui.Refused) {
	v, err := pyjson.Parse(refused.NodeErrors)
	if err != nil {
		return
	}
	var classes []string
	nodes, _ := v.(*pyjson.Object)
	for _, v := range nodes.All() {
		node, _ := v.(*pyjson.Object)
		unlisted := func(v pyjson.Value) bool {
			o, _ := v.(*pyjson.Object)
			return o.String("type") == catalog.ValueNotInList
		}
		if slices.ContainsFunc(node.Array("errors"), unlisted) {
			classes = append(classes, node.String("class_type"))
		}
	}
	if len(classes) == 0 {
		return
	}
	slices.Sort(classes)
	now := time.Now()
	d.work.Go(d.log, "asking about classes", func() { d.AskClasses(d.ctx, slices.Compact(classes), now, false) })
}

// Doubt notes that an instance may have changed, because a client called one of its own routes. The
// next client that asks what it offers makes the hub read that again.
func (d *Dispatcher) Doubt(instance *comfyui.Client) {
	for _, conn := range d.connected() {
		if conn.client == instance {
			conn.ask.doubt()
		}
	}
}

// Relearn reads again what an instance can run, because its agent says that this has changed. It
// does not wait.
func (d *Dispatcher) Relearn(instance string) {
	conn := d.connection(instance)
	if conn == nil || !conn.isOpen() {
		return // it is read on connecting anyway
	}
	conn.ask.doubt()
	if q, mine := conn.ask.wholeSince(time.Now(), 0); mine {
		d.work.Go(conn.log, "reading what an instance can run", func() { d.reread(conn, q) })
	}
}

// reread reads again everything that an instance can run.
func (d *Dispatcher) reread(conn *connection, q *question) {
	ctx, cancel := context.WithTimeout(d.ctx, wholeTimeout)
	defer cancel()
	retry.Sleep(ctx, time.Until(q.from))
	err := panics.Do(conn.log, "reading what an instance can run", func() error { return d.readAgain(ctx, conn) })
	if err != nil && d.ctx.Err() == nil {
		conn.log.Warn("cannot read what the instance can run", "error", err)
	}
	conn.ask.settle(q, "", err)
}

func (d *Dispatcher) readAgain(ctx context.Context, conn *connection) error {
	began := time.Now()
	info, hash, err := d.read(ctx, conn)
	if err != nil {
		return err
	}
	if before := conn.abilities(); before != nil {
		info = info.ReplacingLike(before)
	}
	if conn.takeWhole(d.Library, info, hash, began) {
		d.changed(conn)
	}
	return nil
}

// askClass asks an instance about one class.
func (d *Dispatcher) askClass(conn *connection, class string, q *question) {
	ctx, cancel := context.WithTimeout(d.ctx, partTimeout)
	defer cancel()
	var changed bool
	err := panics.Do(conn.log, "asking about a class", func() (err error) {
		changed, err = d.readClass(ctx, conn, class)
		return err
	})
	if err != nil && d.ctx.Err() == nil {
		conn.log.Debug("cannot read what the instance offers", "error", err)
	}
	if changed {
		d.budget.taught(class)
		d.changed(conn)
	}
	conn.ask.settle(q, class, err)
}

func (d *Dispatcher) readClass(ctx context.Context, conn *connection, class string) (changed bool, err error) {
	if err := conn.ask.enter(ctx); err != nil {
		return false, err
	}
	defer conn.ask.leave()
	began := time.Now()
	held := d.turnOf(conn)
	defer held.leave()
	body, err := conn.client.ObjectInfoOf(ctx, class, held.wait)
	if err != nil {
		return false, err
	}
	done, err := d.parsing.enter(ctx, "")
	if err != nil {
		return false, err
	}
	defer done()
	return conn.takePart(d.Library, class, body, began)
}

// changed tells everybody what an instance can run now, if the connection is still the current one.
func (d *Dispatcher) changed(conn *connection) {
	if d.connection(conn.name) != conn {
		return
	}
	d.Learned(conn.name, conn.abilities(), conn.capability())
	conn.refused.forget()
	d.Wake()
}

// turn is the right to hold the large answers of an agent's instances in memory, one at a time. It
// is taken only when an answer starts to arrive: the instances of one machine work out their
// answers side by side.
type turn struct {
	wait  func(context.Context) error
	leave func()
}

func (d *Dispatcher) turnOf(conn *connection) turn {
	leave := func() {}
	return turn{
		wait: func(ctx context.Context) (err error) {
			got, err := d.learning.enter(ctx, conn.owner)
			if err == nil {
				leave = got
			}
			return err
		},
		leave: func() { leave() },
	}
}
