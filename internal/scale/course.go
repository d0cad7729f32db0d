package scale

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/schedule"
)

// course decides what is to happen to one class at one moment. It changes the record, and calls
// nobody.
type course struct {
	class Class
	now   int64
	rec   *record
	view  View
	watch *watch

	// drain and undrain are instances whose stops are to change; undrain before the record is
	// stored, and drain after it.
	drain, undrain []string

	// The machines by what they are now; each is in one of these.
	up      []schedule.Elastic // they take jobs
	held    []string           // they are there, and take none
	lost    []string           // they are away, and may come back
	leaving []string           // they are drained, and not ready to go
	ready   []string           // the provider may remove them
}

// plan decides. Afterwards the record has a Change if the provider is to be told something.
func (c *course) plan() {
	c.bill()
	c.watch.look(c.now, c.view)
	c.meet()
	c.giveUp()
	c.sort()
	d := schedule.Demand{Waiting: c.view.Waiting, Load: c.watch.load(), Instances: c.up, Starting: len(c.rec.Asked), Start: c.rec.start()}
	s := c.class.bounds(c.rec.Spent).Wanted(d)
	for _, name := range slices.Concat(s.Release, s.Drain) {
		c.letGo(name)
	}
	have := len(c.up) + len(s.Drain) + len(c.rec.Asked) // nobody takes the place of those that the budget ends
	starts := c.takeBack(max(s.Wanted-have, 0))
	total := len(c.up) + len(c.held) + len(c.lost) + len(c.leaving) - c.replaced()
	starts = min(starts, max(c.class.Max-total-len(c.rec.Asked)-len(c.ready), 0))
	c.rec.Why = s.Why
	if starts > 0 && c.now < c.rec.Pause {
		starts, c.rec.Why = 0, s.Why+", but the last starts failed: the next one waits"
	}
	// Never more than max, even if a hub shows machines that are gone: the provider would start others.
	c.rec.Wanted = min(total+len(c.rec.Asked)+starts, c.class.Max)
	c.rec.Have, c.rec.Leaving = len(c.view.Instances), len(c.leaving)+len(c.ready)
	c.tell(starts)
}

// replaced is how many of the machines that are away have been replaced by their provider: it has no more
// machines than it was told to have, and the others are there or on their way.
func (c *course) replaced() int {
	if c.rec.Told < 0 {
		return 0
	}
	there := map[string]bool{}
	for _, i := range c.view.Instances {
		there[i.Name] = true
	}
	present, away := 0, 0
	for name, m := range c.rec.Machines {
		switch {
		case m.Removed != 0:
		case there[name]:
			present++
		case !slices.Contains(c.ready, name): // else it was given up
			away++
		}
	}
	return max(away-max(c.rec.Told-present-len(c.rec.Asked), 0), 0)
}

// bill adds what has been spent since the last time. What the provider was told to have is paid for
// from then on, even if it has not joined yet.
func (c *course) bill() {
	r := c.rec
	today := dayOf(c.now)
	if r.Day != today {
		r.Day, r.Spent = today, 0
		r.Counted = max(r.Counted, today*day)
	}
	if r.Counted > 0 && c.now > r.Counted {
		n := max(r.Told, len(c.view.Instances))
		r.Spent += c.class.Price * float64(n) * (time.Duration(c.now-r.Counted) * time.Millisecond).Hours()
	}
	r.Counted = c.now
}

// meet notes who has come and who is gone.
func (c *course) meet() {
	r := c.rec
	there := map[string]bool{}
	for _, i := range c.view.Instances {
		m, known := r.Machines[i.Name]
		if !known && len(r.Machines) >= maxNames {
			continue
		}
		there[i.Name] = true
		if !known && len(r.Asked) > 0 {
			r.Took = append(r.Took, max(c.now-r.Asked[0], 1))
			r.Took = r.Took[max(len(r.Took)-keptStarts, 0):]
			r.Asked, r.FailedStarts, r.Pause = r.Asked[1:], 0, 0
		}
		m.Seen = c.now
		r.Machines[i.Name] = m
	}
	for _, name := range r.names() {
		if m := r.Machines[name]; !there[name] && m.Removed != 0 && c.watch.missing(c.now, m.Seen) >= goneAfter {
			c.undrain = append(c.undrain, name)
			delete(r.Machines, name)
		}
	}
}

// giveUp drops starts that take too long. The next one waits a while.
func (c *course) giveUp() {
	r := c.rec
	within := max(joinWithin, joinFactor*r.start()).Milliseconds()
	before := len(r.Asked)
	r.Asked = slices.DeleteFunc(r.Asked, func(at int64) bool { return at <= c.now-within })
	if len(r.Asked) < before {
		r.Pause = c.now + pauseAfter(r.FailedStarts, firstPause, mostPause)
		r.FailedStarts++
	}
}

// sort says what each machine is now.
func (c *course) sort() {
	there := map[string]Instance{}
	for _, i := range c.view.Instances {
		there[i.Name] = i
	}
	for _, name := range c.rec.names() {
		m := c.rec.Machines[name]
		i, present := there[name]
		switch away := c.watch.missing(c.now, m.Seen); {
		case m.Removed != 0 && (!present || c.now-m.Removed < removeAgain.Milliseconds()):
			// the provider was told
		case !present && away >= lostAfter:
			c.ready = append(c.ready, name)
		case !present && away >= graceFor || !present && m.Drained != 0:
			c.lost = append(c.lost, name)
		case !present:
			c.up = append(c.up, schedule.Elastic{Name: name, Busy: true})
		case m.Drained != 0 && i.Stopped && !i.Busy:
			c.ready = append(c.ready, name)
		case m.Drained != 0:
			c.drains(name, i)
		case i.Stopped || !i.Works:
			c.held = append(c.held, name)
		default:
			c.up = append(c.up, schedule.Elastic{Name: name, Busy: i.Busy, Left: i.Left, Idle: c.watch.idle(c.now, name), Needed: i.Needed})
		}
	}
}

// drains notes an instance that is to go. It is drained again if that was undone.
func (c *course) drains(name string, i Instance) {
	c.leaving = append(c.leaving, name)
	if !i.Stopped {
		c.drain = append(c.drain, name)
	}
}

// letGo drains an instance that takes jobs so far.
func (c *course) letGo(name string) {
	m := c.rec.Machines[name]
	m.Drained = c.now
	c.rec.Machines[name] = m
	c.up = slices.DeleteFunc(c.up, func(e schedule.Elastic) bool { return e.Name == name })
	c.leaving, c.drain = append(c.leaving, name), append(c.drain, name)
}

// takeBack lets drained instances go on in place of starting others, those that were drained last
// first, and returns how many are still to be started. One that the provider may be removing already
// stays drained until a later change has been taken: it would lose what it was given.
func (c *course) takeBack(starts int) int {
	candidates := slices.DeleteFunc(slices.Concat(c.leaving, c.ready), func(name string) bool {
		m := c.rec.Machines[name]
		return m.Drained == 0 || m.Drained == c.now || m.Removed != 0 || m.Doomed || m.Seen != c.now
	})
	slices.SortStableFunc(candidates, func(a, b string) int {
		return int(c.rec.Machines[b].Drained - c.rec.Machines[a].Drained)
	})
	for _, name := range candidates[:min(starts, len(candidates))] {
		m := c.rec.Machines[name]
		m.Drained = 0
		c.rec.Machines[name] = m
		same := func(other string) bool { return other == name }
		c.leaving, c.ready = slices.DeleteFunc(c.leaving, same), slices.DeleteFunc(c.ready, same)
		c.drain = slices.DeleteFunc(c.drain, same)
		c.undrain = append(c.undrain, name)
		c.up = append(c.up, schedule.Elastic{Name: name})
		starts--
	}
	return starts
}

// tell prepares a change if there is something to tell.
func (c *course) tell(starts int) {
	r := c.rec
	news := starts > 0 || len(c.ready) > 0 || r.Told != r.Wanted
	switch {
	case r.Told < 0 && r.FailedCalls == 0 && starts == 0 && len(c.ready) == 0:
		r.Told = r.Wanted // nothing was ever asked of the provider: it has what is there
		return
	case !news || c.now < r.Retry:
		return
	}
	r.Sequence = max(r.Sequence+1, c.now) // it grows even if Redis has forgotten the last one
	r.Change = &Change{
		ID: rand.Text(), Sequence: r.Sequence, Class: c.class.Name, Wanted: r.Wanted, Start: starts,
		Remove: append([]string{}, c.ready...), Keep: []string{}, Reason: r.Why,
	}
	for _, e := range c.up {
		r.Change.Keep = append(r.Change.Keep, e.Name)
	}
	r.Change.Keep = append(r.Change.Keep, slices.Concat(c.held, c.lost, c.leaving)...) // not null, which programs cannot walk
	slices.Sort(r.Change.Keep)
}
