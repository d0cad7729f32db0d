package shell

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/dustin/go-humanize"
)

// Spare is what comes and goes by need.
type Spare struct {
	Classes   []SpareClass    `json:"classes"`
	Endpoints []SpareEndpoint `json:"overflow"`
}

// SpareClass is a kind of machines that the hub has started and stopped.
type SpareClass struct {
	Class    string `json:"class"`
	Wanted   int    `json:"wanted"`
	Have     int    `json:"have"`
	Starting int    `json:"starting"`
	Leaving  int    `json:"leaving"`
	Max      int    `json:"max"`
	// Why says why so many are wanted, and Error why the provider fails, empty if it does not.
	Why   string `json:"why"`
	Error string `json:"error"`

	Cost
}

// SpareEndpoint is a serverless endpoint.
type SpareEndpoint struct {
	Endpoint string `json:"endpoint"`
	// Running counts the runs of the hub that was asked.
	Running int `json:"running"`
	// SetAside is what the runs that go on may cost at most.
	SetAside float64 `json:"set_aside"`
	// Closed says why it takes no runs, empty if it does.
	Closed string `json:"closed"`

	Cost
}

// Cost is in the operator's money.
type Cost struct {
	// Price is for an hour of a machine, or a second of a run; 0 if it is not known.
	Price float64 `json:"price"`
	// Spent is what was spent today by UTC, and Budget what a day may cost, 0 for no limit.
	Spent  float64 `json:"spent_today"`
	Budget float64 `json:"budget"`
}

// readSpare reads it if the viewer is an operator. A hub of the last version does not tell.
func (f *Fleet) readSpare(ctx context.Context, v view) error {
	if !f.Operator {
		return nil
	}
	err := v.get(ctx, "scale", nil, &f.Spare)
	if refusal, ok := errors.AsType[*Refusal](err); ok && refusal.Status == http.StatusNotFound {
		return nil
	}
	return err
}

// lines are a line for each class and endpoint.
func (s Spare) lines() (lines []string) {
	for _, c := range s.Classes {
		parts := []string{fmt.Sprintf("%s: %d of %d, at most %d", c.Class, c.Have, c.Wanted, c.Max)}
		if c.Starting > 0 {
			parts = append(parts, fmt.Sprintf("%d starting", c.Starting))
		}
		if c.Leaving > 0 {
			parts = append(parts, fmt.Sprintf("%d leaving", c.Leaving))
		}
		lines = append(lines, "Machines   "+strings.Join(said(append(parts, c.today()), c.Why, c.Error), "; "))
	}
	for _, e := range s.Endpoints {
		parts := []string{fmt.Sprintf("%s: %d running", e.Endpoint, e.Running), e.today()}
		if e.SetAside > 0 {
			parts = append(parts, money(e.SetAside)+" set aside")
		}
		if e.Closed != "" {
			parts = append(parts, "takes no runs: "+e.Closed)
		}
		lines = append(lines, "Serverless "+strings.Join(said(parts), "; "))
	}
	return lines
}

// said are the parts that say something.
func said(parts []string, more ...string) (some []string) {
	for _, p := range append(parts, more...) {
		if p != "" {
			some = append(some, p)
		}
	}
	return some
}

// today is what was spent, empty if that is not known.
func (c Cost) today() string {
	switch {
	case c.Price <= 0:
		return ""
	case c.Budget > 0:
		return money(c.Spent) + " of " + money(c.Budget) + " spent today"
	}
	return money(c.Spent) + " spent today"
}

func money(amount float64) string { return humanize.FormatFloat("#,###.##", amount) }
