package queue

import (
	"context"
	"time"
)

// Usage is how much of its limits a tenant is using. What it used before it had a limit does not
// count.
type Usage struct {
	// Running is the number of its runs.
	Running int
	// Spent is the instance time that it has used within 24 hours, by the hour.
	Spent time.Duration
	// Wait is how long until Spent is below the limit again; zero if it is now.
	Wait time.Duration
}

// Usage returns how much of its limits a tenant is using.
func (q *Lessons) Usage(ctx context.Context, tenant string) (Usage, error) {
	_, daily := q.limit.Load().TenantRuns(tenant)
	_, fields, err := q.run(ctx, usageScript, tenant, daily.Milliseconds())
	if err != nil {
		return Usage{}, err
	}
	p := parser{r: record{"running": fields[0], "spent": fields[1], "wait": fields[2]}}
	return Usage{
		Running: int(p.int("running")),
		Spent:   time.Duration(p.int("spent")) * time.Millisecond,
		Wait:    time.Duration(p.int("wait")) * time.Millisecond,
	}, p.err
}
