package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/rescue"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// wholeTimeout and partTimeout bound a question. Whoever wants to know
	// goes on sooner, see asking.
	wholeTimeout = 5 * time.Minute
	partTimeout  = 30 * time.Second
	// maxParts is how many classes are asked for one by one; for more of them
	// the whole is cheaper.
	maxParts = 8
)

// Refresh sees to it that nothing known of what the connected instances can run
// is older than Settings.CatalogAge. It asks all instances at once and waits
// for those that answer in the time they usually take; what the others say is
// taken in when it comes. It returns early when ctx ends.
func (d *Dispatcher) Refresh(ctx context.Context) {
	if d.ctx.Err() != nil {
		return
	}
	now := time.Now()
	age := d.settings().CatalogAge
	for range 2 { // a reading that was under way can be too old
		var waits []*question
		for _, l := range d.open() {
			q, mine := l.ask.wholeSince(now, age)
			if mine {
				d.work.Go(l.log, "reading what an instance can run", func() { d.reread(l, q) })
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

// AskClasses asks the connected instances that have the classes what they offer
// there, unless that has been asked at asOf or later, and waits as Refresh
// does. Busy instances are asked too. curious says that nobody is refused if
// nothing is asked. What a class may cost the instances is bounded; beyond that,
// and for many classes, it does what Refresh does.
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
			for _, l := range d.open() {
				if info := l.abilities(); info == nil || !info.Has(class) {
					continue
				}
				q, mine := l.ask.partSince(class, asOf, allowed)
				if mine {
					d.work.Go(l.log, "asking about a class", func() { d.askClass(l, class, q) })
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

// await waits for questions, each for as long as it is worth it, and reports
// whether all of them have ended.
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

// learnFrom asks about the classes for which an instance has refused a prompt
// because a value is in no list of it: the file was there and is there no more.
// It does not wait.
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

// Doubt notes that an instance may have changed, because a client called one of
// its own routes: whoever asks next learns what it offers now.
func (d *Dispatcher) Doubt(instance *comfyui.Client) {
	for _, l := range d.open() {
		if l.client == instance {
			l.ask.doubt()
		}
	}
}

// Relearn reads anew what an instance can run, because its agent says that it
// has changed. It does not wait.
func (d *Dispatcher) Relearn(instance string) {
	l := d.link(instance)
	if l == nil || !l.isOpen() {
		return // what connects is read anyway
	}
	l.ask.doubt()
	if q, mine := l.ask.wholeSince(time.Now(), 0); mine {
		d.work.Go(l.log, "reading what an instance can run", func() { d.reread(l, q) })
	}
}

// reread reads all that an instance can run.
func (d *Dispatcher) reread(l *link, q *question) {
	ctx, cancel := context.WithTimeout(d.ctx, wholeTimeout)
	defer cancel()
	retry.Sleep(ctx, time.Until(q.from))
	err := rescue.Do(l.log, "reading what an instance can run", func() error { return d.readAgain(ctx, l) })
	if err != nil && d.ctx.Err() == nil {
		l.log.Warn("cannot read what the instance can run", "error", err)
	}
	l.ask.settle(q, "", err)
}

func (d *Dispatcher) readAgain(ctx context.Context, l *link) error {
	began := time.Now()
	info, hash, err := d.read(ctx, l)
	if err != nil {
		return err
	}
	if before := l.abilities(); before != nil {
		info = info.ReplacingLike(before)
	}
	if l.takeWhole(d.Library, info, hash, began) {
		d.changed(l)
	}
	return nil
}

// askClass asks an instance about one class.
func (d *Dispatcher) askClass(l *link, class string, q *question) {
	ctx, cancel := context.WithTimeout(d.ctx, partTimeout)
	defer cancel()
	var changed bool
	err := rescue.Do(l.log, "asking about a class", func() (err error) {
		changed, err = d.readClass(ctx, l, class)
		return err
	})
	if err != nil && d.ctx.Err() == nil {
		l.log.Debug("cannot read what the instance offers", "error", err)
	}
	if changed {
		d.budget.taught(class)
		d.changed(l)
	}
	l.ask.settle(q, class, err)
}

func (d *Dispatcher) readClass(ctx context.Context, l *link, class string) (changed bool, err error) {
	if err := l.ask.enter(ctx); err != nil {
		return false, err
	}
	defer l.ask.leave()
	began := time.Now()
	held := d.turnOf(l)
	defer held.leave()
	body, err := l.client.ObjectInfoOf(ctx, class, held.wait)
	if err != nil {
		return false, err
	}
	done, err := d.parsing.enter(ctx, "")
	if err != nil {
		return false, err
	}
	defer done()
	return l.takePart(d.Library, class, body, began)
}

// changed tells everybody what an instance can run now, as far as the link is
// still the one to it.
func (d *Dispatcher) changed(l *link) {
	if d.link(l.name) != l {
		return
	}
	d.Learned(l.name, l.abilities(), l.capability())
	l.forgive()
	d.Wake()
}

// turn is the right to hold the large answers of an agent's instances in
// memory, one at a time. It is taken when an answer begins and not before: the
// instances of one machine work out their answers side by side.
type turn struct {
	wait  func(context.Context) error
	leave func()
}

func (d *Dispatcher) turnOf(l *link) turn {
	leave := func() {}
	return turn{
		wait: func(ctx context.Context) (err error) {
			got, err := d.learning.enter(ctx, l.owner)
			if err == nil {
				leave = got
			}
			return err
		},
		leave: func() { leave() },
	}
}
