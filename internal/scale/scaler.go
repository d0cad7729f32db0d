package scale

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// callFor bounds a call of a provider. It is shorter than leadFor, so that no other hub calls
// meanwhile.
const callFor = time.Minute

// Options of a Scaler.
type Options struct {
	DB *redis.DB
	// Hub is the lasting id of this hub.
	Hub     string
	Fleet   Fleet
	Tokens  Tokens
	Classes func() []Class
	Log     func() *slog.Logger
	// Every is how often it looks. Default: 5 s.
	Every time.Duration
}

// Scaler starts and stops machines, while no other hub does. It is safe for concurrent use.
type Scaler struct {
	o     Options
	store store

	// watches has what was seen of each class since this hub began to scale; nil while it does not.
	watches map[string]*watch
	// told has for each class the error that was logged last.
	told map[string]string
	// clean says that nothing is left of classes that are not configured any more.
	clean bool
}

// New returns a Scaler; Run makes it work.
func New(o Options) *Scaler {
	o.Every = cmp.Or(o.Every, 5*time.Second)
	return &Scaler{o: o, store: store{o.DB, o.Hub}, told: map[string]string{}}
}

// Run works until the context ends.
func (s *Scaler) Run(ctx context.Context) {
	tick := time.NewTicker(s.o.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := panics.Do(s.o.Log(), "scaling", func() error { return s.round(ctx) })
		if err != nil && !errors.Is(err, errTaken) && ctx.Err() == nil {
			s.say("", err.Error(), "cannot see how many machines are needed")
		} else {
			s.say("", "", "")
		}
	}
}

// round looks once.
func (s *Scaler) round(ctx context.Context) error {
	classes := s.o.Classes()
	if len(classes) == 0 {
		if records, err := s.leftovers(ctx); err != nil || len(records) == 0 {
			return err
		}
	}
	now, records, err := s.store.lead(ctx)
	if err != nil {
		s.watches = nil
		return err
	}
	if s.watches == nil {
		s.watches = map[string]*watch{}
	}
	left, err := s.leave(ctx, classes, records, now)
	if err != nil {
		return err
	}
	s.clean = len(classes) == 0 && left == 0
	if len(classes) == 0 {
		return nil
	}
	views, err := s.o.Fleet.Look(ctx, classes)
	if err != nil {
		return err
	}
	failed := make([]error, len(classes))
	var all sync.WaitGroup
	for n, class := range classes {
		if s.watches[class.Name] == nil {
			s.watches[class.Name] = newWatch(now, class.IdleAfter)
		}
		rec := decode(records[class.Name])
		c := &course{class: class, now: now, rec: &rec, view: views[class.Name], watch: s.watches[class.Name]}
		all.Go(func() {
			failed[n] = panics.Do(s.o.Log(), "scaling", func() error { return s.step(ctx, c, records[class.Name]) })
		})
	}
	all.Wait()
	for n, class := range classes {
		why := ""
		if call, ok := errors.AsType[*callError](failed[n]); ok {
			why, failed[n] = call.Error(), nil
		}
		if ctx.Err() == nil {
			s.say(class.Name, why, "the provider of machines failed")
		}
	}
	return errors.Join(failed...)
}

// leftovers is what is stored of classes when none is configured, if nobody has looked yet.
func (s *Scaler) leftovers(ctx context.Context) (map[string]string, error) {
	if s.clean {
		return nil, nil
	}
	records, err := s.store.read(ctx)
	s.clean = err == nil && len(records) == 0
	return records, err
}

// callError is what a provider has said.
type callError struct{ error }

// step does what is due for one class. before is its record as it is stored.
func (s *Scaler) step(ctx context.Context, c *course, before string) error {
	if c.rec.Change == nil { // else a hub died in the call, or could not note what has come of it
		c.plan()
		if err := s.invite(ctx, c); err != nil {
			return err
		}
	}
	for _, name := range c.undrain {
		if err := s.o.Fleet.Drain(ctx, name, false); err != nil {
			return err
		}
	}
	if text := c.rec.encode(); text != before {
		if err := s.store.keep(ctx, c.class.Name, text); err != nil {
			return err
		}
	}
	for _, name := range c.drain {
		if err := s.o.Fleet.Drain(ctx, name, true); err != nil {
			return err
		}
	}
	if c.rec.Change == nil {
		if c.rec.Error != "" {
			return &callError{errors.New(c.rec.Error)}
		}
		return nil
	}
	return s.call(ctx, c)
}

// invite makes the tokens of the machines that are to be started.
func (s *Scaler) invite(ctx context.Context, c *course) error {
	if c.rec.Change == nil || c.rec.Change.Start == 0 || c.class.Joins == 0 {
		return nil
	}
	if err := s.o.Tokens.Tidy(ctx); err != nil {
		return err
	}
	names := make([]string, c.rec.Change.Start)
	for n := range names {
		names[n] = c.class.newName()
	}
	var err error
	c.rec.Sealed, err = s.o.Tokens.Make(ctx, names, c.class.Joins)
	return err
}

// call tells the provider the change, and notes what has come of it.
func (s *Scaler) call(ctx context.Context, c *course) error {
	change := *c.rec.Change
	var err error
	if c.class.Provider != nil {
		within, cancel := context.WithTimeout(ctx, callFor)
		if c.rec.Sealed != "" {
			change.Join, err = s.o.Tokens.Open(within, c.rec.Sealed)
		}
		if err == nil {
			err = c.class.Provider.Set(within, change)
		}
		cancel()
	}
	if ctx.Err() != nil {
		return ctx.Err() // it is repeated
	}
	log := s.o.Log().With("class", c.class.Name, "change", change.ID, "wanted", change.Wanted, "start", change.Start, "remove", len(change.Remove))
	if err != nil {
		c.rec.failed(c.now, err)
		if err := s.store.keep(ctx, c.class.Name, c.rec.encode()); err != nil {
			return err
		}
		return &callError{errors.New(c.rec.Error)}
	}
	for _, name := range change.Remove { // again if this fails: it is the same change until it is noted as done
		if c.class.Joins == 0 {
			break
		}
		if err := s.o.Tokens.End(ctx, name); err != nil {
			return err
		}
	}
	c.rec.done(c.now)
	log.Info("the number of machines changes", "reason", change.Reason)
	return s.store.keep(ctx, c.class.Name, c.rec.encode())
}

// leave lets the machines of classes that are no longer configured go on as any others. What such a class
// has spent today stays known: it may come back. left is how many of them have spent something.
func (s *Scaler) leave(ctx context.Context, classes []Class, records map[string]string, now int64) (left int, err error) {
	known := map[string]bool{}
	for _, c := range classes {
		known[c.Name] = true
	}
	for class, text := range records {
		if known[class] {
			continue
		}
		rec := decode(text)
		for name, m := range rec.Machines {
			if m.Drained == 0 {
				continue
			}
			if err := s.o.Fleet.Drain(ctx, name, false); err != nil {
				return left, err
			}
		}
		spent := rec.spentOn(dayOf(now))
		if spent != "" {
			left++
		}
		if spent != text {
			if err := s.store.keep(ctx, class, spent); err != nil {
				return left, err
			}
		}
		delete(s.watches, class)
	}
	return left, nil
}

// say logs an error unless it is the one that was logged last.
func (s *Scaler) say(class, why, what string) {
	if s.told[class] == why {
		return
	}
	s.told[class] = why
	if why != "" {
		s.o.Log().Warn(what, "class", class, "error", why)
	}
}

// maxSaid bounds what a provider says, in bytes.
const maxSaid = 500

func clip(text string) string { return text[:min(len(text), maxSaid)] }
