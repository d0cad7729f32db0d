// Package apitest lets a room of the API be tested without a hub: with jobs in memory, of which the
// test says what becomes of them.
package apitest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/view"
)

// Jobs are those of a hub, in the order in which they came. They are safe for concurrent use.
type Jobs struct {
	// Taken is told of each prompt before it is answered, if it is set; an error refuses it.
	Taken func(s submit.Submission) error
	// Does is how jobs end, at once, and their history entries. Without it they wait.
	Does func(s submit.Submission) (end job.State, entry string)

	mu    sync.Mutex
	count int
	all   []*known
}

// known is a job, with its history entry and those who watch it.
type known struct {
	job.Job

	entry string
	news  map[chan job.Job]struct{}
}

// Submit takes a prompt.
func (c *Jobs) Submit(_ context.Context, s submit.Submission, answer func(submit.Accepted, error)) {
	if c.Taken != nil {
		if err := c.Taken(s); err != nil {
			answer(submit.Accepted{Position: -1, ETA: -1}, err)
			return
		}
	}
	c.mu.Lock()
	c.count++
	n := c.count
	j := job.Job{
		Key: fmt.Sprint("key-", n), ID: cmp.Or(s.ID, fmt.Sprint("job-", n)), Requester: s.Requester, Place: s.Place, Label: s.Label,
		Priority: s.Priority, State: job.Queued, Rank: fmt.Sprintf("%09d", n), CreatedAt: int64(1000 * n),
	}
	existing := c.find(j.Tenant, j.ID) != nil
	if !existing {
		k := &known{Job: j, news: map[chan job.Job]struct{}{}}
		if c.Does != nil {
			k.State, k.entry = c.Does(s)
		}
		c.all = append(c.all, k)
	}
	c.mu.Unlock()
	answer(submit.Accepted{ID: j.ID, Existing: existing, CreatedAt: j.CreatedAt, ETA: -1}, nil)
}

// find is a tenant's newest job of an id, nil for none. The caller holds the lock.
func (c *Jobs) find(tenant, id string) *known {
	for _, k := range slices.Backward(c.all) {
		if k.ID == id && k.Tenant == tenant {
			return k
		}
	}
	return nil
}

// Find implements what rooms ask of [view.Jobs].
func (c *Jobs) Find(_ context.Context, tenant, id string) (job.Job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.find(tenant, id); k != nil {
		return k.Job, nil
	}
	return job.Job{}, nil
}

// Job implements what rooms ask of [view.Insight].
func (c *Jobs) Job(ctx context.Context, v view.Viewer, id string) (view.JobView, error) {
	j, err := c.Find(ctx, v.Tenant, id)
	if err == nil && j.Key == "" {
		err = view.ErrNoJob
	}
	return view.JobView{Job: j, Position: c.Positions(ctx, j)[0], ETA: -1, Begins: -1}, err
}

// Positions implements what rooms ask of [view.Insight]. Here tenants do not wait for each other.
func (c *Jobs) Positions(ctx context.Context, jobs ...job.Job) []int {
	positions := make([]int, len(jobs))
	for n, j := range jobs {
		live, _ := c.Live(ctx, j.Tenant)
		live = slices.DeleteFunc(live, func(j job.Job) bool { return j.State != job.Queued })
		positions[n] = slices.IndexFunc(live, func(other job.Job) bool { return other.Key == j.Key })
	}
	return positions
}

// Doing implements what rooms ask of [view.Insight].
func (c *Jobs) Doing(job.Job) view.Doing { return view.Doing{} }

// Live implements what rooms ask of [view.Jobs].
func (c *Jobs) Live(_ context.Context, tenant string) ([]job.Job, error) {
	return c.where(func(j job.Job) bool { return j.Tenant == tenant && j.State.Live() }), nil
}

// LiveOf implements what rooms ask of [view.Jobs].
func (c *Jobs) LiveOf(_ context.Context, tenant string, owner job.Owner) ([]job.Job, error) {
	return c.where(func(j job.Job) bool { return j.Tenant == tenant && j.State.Live() && owner.Has(j) }), nil
}

// Ended implements what rooms ask of [view.Jobs].
func (c *Jobs) Ended(_ context.Context, tenant string) (records []view.EndedJob, err error) {
	for _, j := range c.where(func(j job.Job) bool { return j.Tenant == tenant && !j.State.Live() }) {
		records = append(records, view.EndedJob{Job: j})
	}
	return records, nil
}

func (c *Jobs) where(which func(job.Job) bool) (jobs []job.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.all {
		if which(k.Job) {
			jobs = append(jobs, k.Job)
		}
	}
	return jobs
}

// packed is a history entry.
type packed string

// Size implements [view.Packed].
func (p packed) Size() int64 { return int64(len(p)) }

// JSON implements [view.Packed].
func (p packed) JSON() ([]byte, error) { return []byte(p), nil }

// Outcome implements what rooms ask of [view.Jobs].
func (c *Jobs) Outcome(_ context.Context, j job.Job) (view.Packed, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.find(j.Tenant, j.ID); k != nil && k.entry != "" {
		return packed(k.entry), nil
	}
	return nil, view.ErrNoJob
}

// Look implements what rooms ask of [view.Jobs].
func (c *Jobs) Look(ctx context.Context, tenant, id string) (view.FoundJob, error) {
	j, err := c.Find(ctx, tenant, id)
	if err == nil && j.Key == "" {
		err = view.ErrNoJob
	}
	return view.FoundJob{Job: j}, err
}

// Watch implements what rooms ask of [view.Watches].
func (c *Jobs) Watch(j job.Job) (<-chan job.Job, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := make(chan job.Job, 10)
	if k := c.find(j.Tenant, j.ID); k != nil {
		k.news[news] = struct{}{}
	}
	return news, func() {}
}

// Change changes the newest job of an id, whoever's it is, and tells those who watch it.
func (c *Jobs) Change(id string, change func(j *job.Job)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range slices.Backward(c.all) {
		if k.ID == id {
			change(&k.Job)
			for news := range k.news {
				news <- k.Job
			}
			return
		}
	}
}

// Run gives a job to an instance.
func (c *Jobs) Run(id, instance string) {
	c.Change(id, func(j *job.Job) {
		j.State, j.StartedAt, j.Run = job.Running, j.CreatedAt+1, job.Run{Instance: instance, Upstream: id}
	})
}

// End ends a job with a history entry.
func (c *Jobs) End(id string, state job.State, entry string) {
	c.mu.Lock()
	for _, k := range c.all {
		if k.ID == id {
			k.entry = entry
		}
	}
	c.mu.Unlock()
	c.Change(id, func(j *job.Job) { j.State, j.FinishedAt = state, j.CreatedAt+2 })
}

// Cancel implements what rooms ask of [submit.Canceller]: a job that waits vanishes.
func (c *Jobs) Cancel(_ context.Context, tenant, id string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.find(tenant, id)
	if k == nil || !k.State.Live() {
		return false, nil
	}
	if k.State == job.Queued {
		c.all = slices.DeleteFunc(c.all, func(other *known) bool { return other == k })
		for news := range k.news {
			close(news)
		}
		return true, nil
	}
	k.State = job.Cancelled
	for news := range k.news {
		news <- k.Job
	}
	return true, nil
}

// Stop implements what rooms ask of [submit.Canceller].
func (c *Jobs) Stop(ctx context.Context, j job.Job) error {
	_, err := c.Cancel(ctx, j.Tenant, j.ID)
	return err
}
