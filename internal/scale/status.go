package scale

import (
	"context"
	"time"
)

// Status is how a class is doing.
type Status struct {
	Class string
	// Wanted is how many machines there are to be, Have how many instances are there, Starting how
	// many were asked for and have not joined, and Leaving how many are drained to go.
	Wanted, Have, Starting, Leaving int
	Min, Max                        int
	// Why says in one sentence why so many are wanted.
	Why string
	// Spent is what today's machines have cost so far, and Budget what they may; 0 if there is no
	// price, and no limit.
	Spent, Budget, Price float64
	// Start is how long a start usually takes, 0 if none was seen.
	Start time.Duration
	// FailedStarts is how many machines in a row did not join in time, and Error why the provider
	// failed; empty if it did not.
	FailedStarts int
	Error        string
}

// Status returns how all classes are doing, as the hub that scales has last seen it, in the order
// of the configuration. The error is one of Redis.
func (s *Scaler) Status(ctx context.Context) ([]Status, error) {
	classes := s.o.Classes()
	if len(classes) == 0 {
		return nil, nil
	}
	records, err := s.store.read(ctx)
	if err != nil {
		return nil, err
	}
	today := s.o.DB.Clock().Now().UnixMilli() / (24 * time.Hour).Milliseconds()
	list := make([]Status, 0, len(classes))
	for _, c := range classes {
		r := decode(records[c.Name])
		if r.Day != today {
			r.Spent = 0
		}
		list = append(list, Status{
			Class: c.Name, Wanted: r.Wanted, Have: r.Have, Starting: len(r.Asked), Leaving: r.Leaving, Min: c.Min, Max: c.Max, Why: r.Why,
			Spent: r.Spent, Budget: c.Budget, Price: c.Price, Start: r.start(), FailedStarts: r.FailedStarts, Error: r.Error,
		})
	}
	return list, nil
}
