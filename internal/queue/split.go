package queue

import (
	"context"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/job"
)

// wholeMark is the field parts of a job that is not split again.
const wholeMark = "whole"

// Part is a job that makes a part of another one.
type Part struct {
	// Key is the same each time that the job is split.
	Key string
	// Shape is the job's, see [job.Job].
	Shape string
	Body  job.Body
}

// PartEnd is what became of a part.
type PartEnd struct {
	// State is empty if there is no such job, or no longer.
	State job.State
	// CreatedAt is when it was made, in milliseconds by Redis's clock.
	CreatedAt int64
	// Instance is where it has run, empty before its first run.
	Instance string
	// Entry is what its history entry would be, for one that has ended.
	Entry []byte
}

// Split makes the other parts of a running job, all of one class; those that are there stay as they
// are. From now on the job is that many parts, in its next runs as well, and they end when it ends.
// Errors: ErrStale; ErrCancelled; ErrAnswered if the job is made in other parts or as a whole, also
// because a hub on this Redis is of a version that knows no parts.
func (q *SplitJobs) Split(ctx context.Context, run job.Run, class string, parts []Part) error {
	args := q.splitArgs(run, class)
	for _, p := range parts {
		stored := q.codec.encodeBody(p.Body)
		args[3] = p.Body.Requires
		args = append(args, p.Key, stored, weigh(p.Body, stored, nil), p.Shape)
	}
	return q.split(ctx, run, args)
}

// Unsplit makes a job as a whole from now on, and ends its parts. Errors: those of Split.
func (q *SplitJobs) Unsplit(ctx context.Context, run job.Run) error {
	return q.split(ctx, run, q.splitArgs(run, ""))
}

// splitArgs are those before the parts.
func (q *SplitJobs) splitArgs(run job.Run, class string) []any {
	alone := ""
	if q.db.Embedded() {
		alone = "1"
	}
	return []any{run.Key, run.Fence, class, "", alone}
}

func (q *SplitJobs) split(ctx context.Context, run job.Run, args []any) error {
	return q.asHolder(ctx, run, func() error {
		code, fields, err := q.run(ctx, splitScript, args...)
		if err == nil {
			err = refusal(code)
		}
		if err == nil {
			parts := replied(fields)["parts"]
			q.copies.change(run.Key, nil, func(c *copied) { c.record["parts"] = parts })
		}
		return err
	})
}

// Redo forgets the end of a part, so that the next Split makes it again. Errors: ErrStale.
func (q *SplitJobs) Redo(ctx context.Context, run job.Run, part string) error {
	return q.asHolder(ctx, run, func() error {
		code, _, err := q.run(ctx, redoPartScript, run.Key, run.Fence, part)
		if err == nil {
			err = refusal(code)
		}
		if err == nil {
			q.copies.forget(part)
		}
		return err
	})
}

// Limited reports whether a tenant may use no more than so much, so that its jobs are made as wholes:
// a part that had to wait for a limit would hold up the others.
func (q *SplitJobs) Limited(tenant string) bool {
	running, daily := q.limit.Load().TenantRuns(tenant)
	return running > 0 || daily > 0
}

// PartEnds returns what became of parts, in the order of their keys.
func (q *SplitJobs) PartEnds(ctx context.Context, keys []string) ([]PartEnd, error) {
	records, err := q.records(ctx, keys, "state", "created", "instance", "result")
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	ends := make([]PartEnd, len(keys))
	for n, r := range records {
		p := parser{r: r}
		ends[n] = PartEnd{State: job.State(r["state"]), CreatedAt: p.int("created"), Instance: r["instance"]}
		if ends[n].State.Ended() {
			ends[n].Entry, _ = q.codec.expand([]byte(r["result"])) // without it, it does not fit the others
		}
	}
	return ends, nil
}
