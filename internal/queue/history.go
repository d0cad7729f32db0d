package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Entry is a history entry. It stays compressed until its JSON is requested, so
// that a listing of thousands needs little memory.
type Entry struct {
	Key    string
	Tenant string
	ID     string
	// Number is the queue number that the entry must show instead of its own, because a younger job
	// of the tenant ended earlier or an older hub wrote NaN there; "" for its own.
	Number string

	stored []byte
	codec  *codec
}

// Size returns roughly how many bytes JSON needs.
func (e Entry) Size() int64 { return unpackedSize(e.stored) }

// JSON returns the entry as it was written.
func (e Entry) JSON() ([]byte, error) {
	if e.codec == nil {
		return nil, ErrNotFound
	}
	return e.codec.expand(e.stored)
}

// Page selects history entries as ComfyUI's /history does. The zero value selects
// all.
type Page struct {
	// Max is max_items; nil means no limit.
	Max *int
	// Offset counts from the oldest entry; nil or negative means that Max selects
	// the newest entries.
	Offset *int
}

// span returns the first entry and the one after the last, out of n. ComfyUI counts while it
// iterates, so a limit below 1 together with an offset still selects one entry.
func (p Page) span(n int) (from, to int) {
	if p.Offset != nil && *p.Offset >= 0 {
		from = min(*p.Offset, n)
		if p.Max != nil {
			return from, min(from+max(min(*p.Max, n), 1), n)
		}
		return from, n
	}
	if p.Max != nil {
		return n - min(max(*p.Max, 0), n), n
	}
	return 0, n
}

// page returns the keys of a page, oldest first.
func (q *EndedJobs) page(ctx context.Context, tenant string, p Page) ([]string, error) {
	n, err := q.db.Client().ZCard(ctx, q.keys.history(tenant)).Result()
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	from, to := p.span(int(n))
	if from >= to {
		return nil, nil
	}
	keys, err := q.db.Client().ZRange(ctx, q.keys.history(tenant), int64(from), int64(to-1)).Result()
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	return keys, nil
}

// History returns entries of a tenant, oldest first, with ComfyUI's paging.
func (q *EndedJobs) History(ctx context.Context, tenant string, p Page) ([]Entry, error) {
	keys, err := q.page(ctx, tenant, p)
	if err != nil {
		return nil, err
	}
	return q.readEntries(ctx, tenant, keys)
}

// HistoryEntry returns the entry of an id. Errors: ErrNotFound.
func (q *EndedJobs) HistoryEntry(ctx context.Context, tenant, id string) (Entry, error) {
	key, err := q.db.Client().HGet(ctx, q.keys.entries(tenant), id).Result()
	if errors.Is(err, redis.Nil) {
		return Entry{}, ErrNotFound
	}
	if err != nil {
		return Entry{}, fmt.Errorf("queue: %w", err)
	}
	return q.EntryOf(ctx, job.Job{Requester: job.Requester{Tenant: tenant}, Key: key})
}

// EntryOf returns the entry of an ended job. Errors: ErrNotFound.
func (q *EndedJobs) EntryOf(ctx context.Context, j job.Job) (Entry, error) {
	entries, err := q.readEntries(ctx, j.Tenant, []string{j.Key})
	if err == nil && len(entries) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Entry{}, err
	}
	return entries[0], nil
}

// readEntries reads the entries of jobs; removed ones are skipped.
func (q *EndedJobs) readEntries(ctx context.Context, tenant string, keys []string) ([]Entry, error) {
	fields := make([]*redis.SliceCmd, len(keys))
	texts := make([]*redis.StringCmd, len(keys))
	err := q.pipeline(ctx, len(keys), heavyBatch, func(p redis.Pipeliner, i int) {
		fields[i], texts[i] = p.HMGet(ctx, q.keys.job(keys[i]), "id", "raised", "number"), p.Get(ctx, q.keys.entry(keys[i]))
	})
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(keys))
	for i, key := range keys {
		if texts[i].Err() != nil || fields[i].Err() != nil {
			continue
		}
		id, ok := fields[i].Val()[0].(string)
		if !ok {
			continue
		}
		number, _ := fields[i].Val()[1].(string)
		own, _ := fields[i].Val()[2].(string)
		if finite := string(pyjson.Finite(pyjson.Number(own))); number == "" && own != "" && finite != own {
			number = finite
		}
		entries = append(entries, Entry{
			Key: key, Tenant: tenant, ID: id, Number: number, stored: []byte(texts[i].Val()), codec: q.codec,
		})
	}
	return entries, nil
}

// Record is an ended job in the form that listings need.
type Record struct {
	Job     job.Job
	Summary []byte
	// Delivered means that the client has confirmed the end.
	Delivered bool
}

// Ended returns the records of a tenant's ended jobs, in the order and with the
// paging of History, without reading the entries.
func (q *EndedJobs) Ended(ctx context.Context, tenant string, p Page) ([]Record, error) {
	keys, err := q.page(ctx, tenant, p)
	if err != nil {
		return nil, err
	}
	return q.EndedOf(ctx, keys)
}

// EndedKeys returns the keys of a tenant's ended jobs in the order of History.
func (q *EndedJobs) EndedKeys(ctx context.Context, tenant string) ([]string, error) {
	return q.page(ctx, tenant, Page{})
}

// EndedOf returns the records of those of the jobs that have ended; unknown ones, and those that
// were cancelled while they waited, are skipped. Except for Delivered, a record never changes once
// it exists.
func (q *EndedJobs) EndedOf(ctx context.Context, keys []string) ([]Record, error) {
	records, err := q.records(ctx, keys, append(slices.Clone(recordFields[:]), "summary", "delivered", "gone")...)
	if err != nil {
		return nil, err
	}
	out := make([]Record, 0, len(records))
	for i, r := range records {
		j, err := r.job()
		if r["state"] == "" {
			continue
		}
		if err != nil {
			q.log.Error("cannot read a job's record", "job", keys[i], "error", err)
			continue
		}
		if !j.State.Ended() || r["gone"] == "1" {
			continue
		}
		out = append(out, Record{Job: j, Summary: []byte(r["summary"]), Delivered: r["delivered"] == "1"})
	}
	return out, nil
}

// DeleteHistory removes the entries with these ids; unknown ids are not an error. Files stay, as in
// ComfyUI.
func (q *EndedJobs) DeleteHistory(ctx context.Context, tenant string, ids []string) error {
	err := q.forget(ctx, tenant, "ids", ids)
	q.copies.deletedEnds(tenant, ids)
	return err
}

// ClearHistory removes the current entries of a tenant, or those of one of its
// callers if caller is not empty.
func (q *EndedJobs) ClearHistory(ctx context.Context, tenant, caller string) error {
	if caller != "" {
		return q.ClearHistoryOf(ctx, tenant, job.Owner{Callers: []string{caller}})
	}
	keys, err := q.page(ctx, tenant, Page{})
	if err != nil {
		return err
	}
	return q.forget(ctx, tenant, "keys", keys)
}

// ClearHistoryOf removes the current entries of one of a tenant's owners.
func (q *EndedJobs) ClearHistoryOf(ctx context.Context, tenant string, owner job.Owner) error {
	keys, err := q.page(ctx, tenant, Page{})
	if err != nil {
		return err
	}
	records, err := q.records(ctx, keys, "caller", "posted_from")
	if err != nil {
		return err
	}
	var own []string
	for i, r := range records {
		if owner.Has(job.Job{Requester: job.Requester{Caller: r["caller"]}, Place: r["posted_from"]}) {
			own = append(own, keys[i])
		}
	}
	return q.forget(ctx, tenant, "keys", own)
}

func (q *EndedJobs) forget(ctx context.Context, tenant, kind string, names []string) error {
	for batch := range slices.Chunk(names, batchSize) {
		args := make([]any, 0, 2+len(batch))
		args = append(args, tenant, kind)
		for _, name := range batch {
			args = append(args, name)
		}
		if _, _, err := q.run(ctx, forgetScript, args...); err != nil {
			return err
		}
		if kind == "keys" {
			q.copies.deleted(batch...)
		}
	}
	return nil
}

// ExpireHistory drops the entries of jobs that ended at or before the given time, of one tenant or,
// with "", of all.
func (q *EndedJobs) ExpireHistory(ctx context.Context, tenant string, until time.Time) error {
	for {
		_, dropped, err := q.run(ctx, expireScript, until.UnixMilli(), tenant)
		if err != nil || len(dropped) == 0 || dropped[0] == "0" {
			return err
		}
	}
}

// RecountHistory counts history entries that earlier versions wrote toward their tenants, so that
// these tenants pay their share too. It may be run at any time, by several hubs at once.
func (q *EndedJobs) RecountHistory(ctx context.Context) error {
	for from := 0; ; from += batchSize {
		_, looked, err := q.run(ctx, recountScript, from, batchSize)
		if err != nil || len(looked) == 0 || looked[0] == "0" {
			return err
		}
	}
}

// Confirmed is an end that a client has confirmed: the end of the newest job with this id.
type Confirmed struct{ Tenant, ID string }

// DeliveredEnds records that clients have confirmed ends, in one round trip. It skips unknown jobs.
func (q *EndedJobs) DeliveredEnds(ctx context.Context, ends ...Confirmed) error {
	var args []any
	for _, e := range ends {
		args = append(args, e.Tenant, e.ID)
	}
	code, keys, err := q.run(ctx, deliveredScript, args...)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if key != "" {
			q.copies.change(key, nil, func(c *copied) { c.delivered = true })
		}
	}
	return refusal(code)
}

// Unconfirmed is the key of an ended job whose client has not confirmed the end.
type Unconfirmed struct {
	Key string
	// Turn is the number of the end among the ends of all jobs.
	Turn int64
}

// Unconfirmed returns the last n such jobs of each client, the one that ended last first. Only the
// tenant and client of a requester count.
func (q *EndedJobs) Unconfirmed(ctx context.Context, clients []job.Requester, n int) ([][]Unconfirmed, error) {
	reads := make([]*redis.ScoredCmd, len(clients))
	err := q.pipeline(ctx, len(clients), batchSize, func(p redis.Pipeliner, i int) {
		reads[i] = p.ZRevRangeWithScores(ctx, q.keys.undelivered(clients[i].Tenant, clients[i].Client), 0, int64(n-1))
	})
	if err != nil {
		return nil, err
	}
	out := make([][]Unconfirmed, len(clients))
	for i, read := range reads {
		for _, z := range read.Val() {
			if key, ok := z.Member.(string); ok {
				out[i] = append(out[i], Unconfirmed{Key: key, Turn: int64(z.Score)})
			}
		}
	}
	return out, nil
}

// Undelivered returns ended jobs of a client that has not confirmed the end, in the order in which
// they ended, as long as their history entries exist.
func (q *EndedJobs) Undelivered(ctx context.Context, tenant, client string) ([]job.Job, error) {
	keys, err := q.db.Client().ZRange(ctx, q.keys.undelivered(tenant, client), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	return q.jobs(ctx, keys)
}
