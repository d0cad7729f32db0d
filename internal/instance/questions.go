package instance

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/pyjson"
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
// Config.CatalogAge. It asks all instances at once and waits for those that answer in the time
// they usually take; what the others say is taken in when it comes. It returns early when ctx ends.
func (dc *Discovery) Refresh(ctx context.Context) {
	if dc.ctx.Err() != nil {
		return
	}
	now := time.Now()
	age := dc.age()
	for range 2 { // a reading that was already under way can be too old
		var waits []*question
		for _, conn := range dc.links.Open() {
			q, mine := conn.ask.wholeSince(now, age)
			if mine {
				dc.work.Go(conn.Log, "reading what an instance can run", func() { dc.reread(conn, q) })
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
func (dc *Discovery) AskClasses(ctx context.Context, classes []string, asOf time.Time, curious bool) {
	if len(classes) > maxParts {
		if !curious {
			dc.Refresh(ctx)
		}
		return
	}
	if dc.ctx.Err() != nil {
		return
	}
	spent := false
	for range 2 {
		var waits []*question
		for _, class := range classes {
			allowed := sync.OnceValue(func() bool {
				ok := dc.budget.take(class, time.Now(), curious)
				spent = spent || !ok
				return ok
			})
			for _, conn := range dc.links.Open() {
				if info := conn.Abilities(); info == nil || !info.Has(class) {
					continue
				}
				q, mine := conn.ask.partSince(class, asOf, allowed)
				if mine {
					dc.work.Go(conn.Log, "asking about a class", func() { dc.askClass(conn, class, q) })
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
		dc.Refresh(ctx)
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

// LearnFrom asks about the classes for which an instance has refused a prompt because a value is
// not in any of its lists: the file was there and no longer is. It does not wait.
func (dc *Discovery) LearnFrom(refused *comfyui.Refused) {
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
	dc.work.Go(dc.log, "asking about classes", func() { dc.AskClasses(dc.ctx, slices.Compact(classes), now, false) })
}

// askClass asks an instance about one class.
func (dc *Discovery) askClass(conn *Link, class string, q *question) {
	ctx, cancel := context.WithTimeout(dc.ctx, partTimeout)
	defer cancel()
	var changed bool
	err := panics.Do(conn.Log, "asking about a class", func() (err error) {
		changed, err = dc.readClass(ctx, conn, class)
		return err
	})
	if err != nil && dc.ctx.Err() == nil {
		conn.Log.Debug("cannot read what the instance offers", "error", err)
	}
	if changed {
		dc.budget.taught(class)
		dc.changed(conn)
	}
	conn.ask.settle(q, class, err)
}

func (dc *Discovery) readClass(ctx context.Context, conn *Link, class string) (changed bool, err error) {
	if err := conn.ask.enter(ctx); err != nil {
		return false, err
	}
	defer conn.ask.leave()
	began := time.Now()
	held := dc.turnOf(conn)
	defer held.leave()
	body, err := conn.Client.ObjectInfoOf(ctx, class, held.wait)
	if err != nil {
		return false, err
	}
	done, err := dc.parsing.enter(ctx, "")
	if err != nil {
		return false, err
	}
	defer done()
	return conn.takePart(dc.library, class, body, began)
}
