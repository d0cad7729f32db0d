package queue

import (
	"context"
	"fmt"
	"slices"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Live returns the running and waiting jobs of a tenant, or of all with "", in rank order. Those of
// a tenant exclude jobs whose client has not been answered yet, see [Queue.Admit].
func (q *Listing) Live(ctx context.Context, tenant string) ([]job.Job, error) {
	jobs, err := q.Listed(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var known []int
	for n, j := range jobs {
		if untouched(&j) {
			known = append(known, n)
		}
	}
	keys := make([]string, len(known))
	for i, n := range known {
		keys[i] = jobs[n].Key
	}
	records, err := q.records(ctx, keys, "reason", "fence")
	if err != nil {
		return nil, err
	}
	var changed []string
	for i, n := range known {
		jobs[n].Reason = records[i]["reason"]
		if fenceOf(records[i]) != 0 {
			changed = append(changed, keys[i])
		}
	}
	return q.again(ctx, jobs, changed)
}

// again reads some of the jobs once more and drops those that have ended.
func (q *Listing) again(ctx context.Context, jobs []job.Job, keys []string) ([]job.Job, error) {
	if len(keys) == 0 {
		return jobs, nil
	}
	fresh, err := q.jobs(ctx, keys)
	if err != nil {
		return nil, err
	}
	byKey := make(map[string]job.Job, len(keys))
	for _, key := range keys {
		byKey[key] = job.Job{}
	}
	for _, j := range fresh {
		byKey[j.Key] = j
	}
	for n := range jobs {
		if j, ok := byKey[jobs[n].Key]; ok {
			jobs[n] = j
		}
	}
	return slices.DeleteFunc(jobs, func(j job.Job) bool { return !j.State.Live() }), nil
}

// Listed is a faster Live, for callers that need not know why a waiting job is waiting or how often
// it was given out: the Reason, Attempts, Kills, Excuses, Lost, NotBefore and Run of a waiting job
// may be out of date.
func (q *Listing) Listed(ctx context.Context, tenant string) ([]job.Job, error) {
	list, err := q.listings.read(ctx, tenant, func(ctx context.Context, kept []*job.Job) ([]*job.Job, error) {
		return q.readListing(ctx, tenant, kept)
	})
	if err != nil {
		return nil, err
	}
	now := q.Clock().Now()
	jobs := make([]job.Job, 0, len(list))
	for _, j := range list {
		if tenant == "" || !j.AtDoor(now) {
			jobs = append(jobs, *j)
		}
	}
	return jobs, nil
}

// readListing reads a tenant's running and waiting jobs in rank order. It does not read kept jobs
// again if they are still waiting under the same rank.
func (q *Listing) readListing(ctx context.Context, tenant string, kept []*job.Job) ([]*job.Job, error) {
	ranks, waiting, err := q.readRanks(ctx, tenant)
	if err != nil {
		return nil, err
	}
	list := make([]*job.Job, len(ranks))
	var unknown []string
	for n, rank := range ranks { // all three are in the order of ranks
		for len(kept) > 0 && kept[0].Rank < rank {
			kept = kept[1:]
		}
		for len(waiting) > 0 && waiting[0] < rank {
			waiting = waiting[1:]
		}
		if len(kept) > 0 && kept[0].Rank == rank && len(waiting) > 0 && waiting[0] == rank {
			list[n] = kept[0]
		} else {
			unknown = append(unknown, keyOf(rank))
		}
	}
	jobs, err := q.jobs(ctx, unknown)
	if err != nil {
		return nil, err
	}
	for n, rank := range ranks {
		if list[n] == nil && len(jobs) > 0 && jobs[0].Key == keyOf(rank) {
			list[n], jobs = compact(jobs[0], list[:n]), jobs[1:]
		}
	}
	// Jobs that have ended meanwhile are in the history by now.
	return slices.DeleteFunc(list, func(j *job.Job) bool { return j == nil || !j.State.Live() }), nil
}

// readRanks returns the ranks of a tenant's live jobs, and of those that were waiting a moment
// later.
func (q *Listing) readRanks(ctx context.Context, tenant string) (live, waiting []string, err error) {
	var all *redis.StringSliceCmd
	var bands []*redis.StringSliceCmd
	_, err = q.db.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
		all = p.ZRange(ctx, q.keys.live(tenant), 0, -1)
		for _, key := range waitsOf(q.keys, tenant) {
			bands = append(bands, p.ZRange(ctx, key, 0, -1))
		}
		return nil
	})
	if err != nil {
		q.doubt(err)
		return nil, nil, fmt.Errorf("queue: %w", err)
	}
	waiting = bands[0].Val()
	for _, band := range bands[1:] {
		waiting = append(waiting, band.Val()...)
	}
	return all.Val(), waiting, nil
}

// waitsOf returns the zsets of a tenant's waiting jobs, or of all waiting jobs with "", in rank
// order. Paused jobs are in none.
func waitsOf(k keys, tenant string) []string {
	if tenant == "" {
		return []string{k.waiting()}
	}
	// The marks of bands, see scripts/bands.lua.
	return []string{k.db.Key("q", "waits+", tenant), k.db.Key("q", "waits", tenant), k.db.Key("q", "waits~", tenant)}
}

// compact returns a copy of a job that shares equal texts with the one before it: listings keep
// many jobs of few clients.
func compact(j job.Job, before []*job.Job) *job.Job {
	if len(before) == 0 || before[len(before)-1] == nil {
		return &j
	}
	last := before[len(before)-1]
	for _, text := range []struct {
		own *string
		its string
	}{{&j.Tenant, last.Tenant}, {&j.Caller, last.Caller}, {&j.Client, last.Client}, {&j.Place, last.Place}, {&j.Class, last.Class}, {&j.Shape, last.Shape}} {
		if *text.own == text.its {
			*text.own = text.its
		}
	}
	return &j
}

// LiveOf returns the running and waiting jobs of a caller in rank order, except
// those whose client has not been answered yet.
func (q *Listing) LiveOf(ctx context.Context, caller string) ([]job.Job, error) {
	jobs, err := q.live(ctx, q.keys.caller(caller))
	return q.notAtDoor(jobs), err
}

func (q *Listing) live(ctx context.Context, set string) ([]job.Job, error) {
	ranks, err := q.db.Client().ZRange(ctx, set, 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	jobs, err := q.jobs(ctx, keysOf(ranks))
	// Jobs that have ended meanwhile are in the history by now.
	return slices.DeleteFunc(jobs, func(j job.Job) bool { return !j.State.Live() }), err
}
