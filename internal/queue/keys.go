package queue

import "github.com/comfyhub/comfyhub/internal/redis"

// keys builds the names of the queue's keys for plain reads. Scripts build
// the same names; this is the list of all of them.
//
//	q:job:KEY              hash    a job's record; see record.go
//	q:body:KEY             string  a live job's body, compressed
//	q:secret:KEY           string  a live job's API keys, encrypted
//	q:entry:KEY            string  an ended job's history entry, compressed
//	q:waiting              zset    ranks of all waiting jobs
//	q:paused               zset    ranks of the jobs that wait and are paused; no other key of waiting ones has them
//	q:parts                zset    those among the waiting ones that are parts of other jobs, see scripts/split.lua
//	q:wait:CLASS           zset    ranks of the waiting jobs of a class
//	q:waits:TENANT         zset    those of a tenant; q:wait:CLASS:TENANT and q:classes:TENANT as above
//	q:tenants              zset    tenants with waiting jobs by their start tags, see scripts/shares.lua
//	q:tags                 zset    tenants by their start tags, also those that have nothing waiting
//	q:costs                hash    tenant -> what its last run cost
//	q:turns                hash    tenant -> place of the job of its callers that was given out last
//	q:callers:TENANT       zset    callers by the place of their last job
//	q:waiting_jobs         hash    tenant -> number of its waiting jobs; "" -> of all
//	q:waiting_bytes        hash    the same of the bytes of their bodies and secrets
//	q:seats:TENANT         set     keys of the jobs whose runs count for its limit
//	q:spent:TENANT         hash    hour since 1970 -> milliseconds of instances used; for a day
//	q:rate:TENANT          string  when its prompts would all have come at the pace of its limit, in microseconds
//	q:capped               zset    tenants at a limit, by when a claim may be tried again
//	q:stops                set     what is paused, see Stop
//	q:stops_by_hand        set     those of them that the operator has stopped, and not the scaler
//	q:stop_deadlines       hash    Stop -> when what still runs there is taken back
//	q:classes              set     classes with waiting jobs
//	q:class:CLASS          hash    requires; live, the number of its live jobs
//	q:live                 zset    ranks of all live jobs
//	q:live:TENANT          zset    the same of a tenant
//	q:caller:CALLER        zset    the same of a caller
//	q:ids:TENANT           hash    id -> key of the newest job of that id
//	q:leases               zset    keys of held runs by the end of their lease
//	q:hubs                 zset    hubs by the time until which their last beat counts
//	q:hubs:parts           zset    those of them that know parts of jobs, see scripts/split.lua
//	q:instances            hash    instance -> key of the job that it runs
//	q:history              zset    keys of ended jobs in the order in which they ended
//	q:history:TENANT       zset    those of a tenant by their place in its history
//	q:shares:entries       zset    tenants by the number of their history entries
//	q:shares:bytes         zset    tenants by the bytes of these
//	q:entries:TENANT       hash    id -> key of the job of the history entry
//	q:results:TENANT       hash    what a result depended on -> key of the ended job that has it, see package resultcache
//	q:undelivered:PACKED   zset    keys of ended jobs that a (tenant, client) has not confirmed
//	q:tombs                zset    keys of jobs cancelled while waiting, by the end of their tombstone
//	q:forgotten:KEY        string  the job was removed on purpose; for half an hour
//	q:numbers              hash    tenant -> ComfyUI's next queue number
//	q:raised               hash    tenant -> highest number in its history
//	q:counters             hash    turns, ends, bytes of history, swept, recounted, virtual, indexed, reindexed, callbacks
//	q:callback:KEY         hash    a job's callback: tenant, id, url; of its first event that waits attempts, error and turn
//	q:callback_line:KEY    list    its events that wait to be delivered, in order
//	q:callbacks_due:TENANT zset    keys of a tenant's jobs whose first event waits, by when it is due
//	q:callback_tenants     zset    tenants that have such jobs, see scripts/callbacks.lua
//	q:callbacks_open       zset    keys of jobs that count for the bound of callbacks, by when they are looked after
//	q:callbacks_open:TENANT set    those of a tenant
//	q:callback_dead:ID     hash    an event that could not be delivered
//	q:callbacks_dead       zset    ids of these by when they were given up; q:callbacks_dead:TENANT those of a tenant
//	q:lessons              zset    checks that instances are known to make, by when that was seen
//	q:durations            hash    structure and GPU type -> the last measured runs
//	q:durations_used       zset    these by when the last run was added
//	q:events               channel hints
//
// In zsets of ranks all scores are 0: their order is the byte order of the ranks, which is the
// order of execution within a tenant, and each rank ends with the key of its job. Whose tenant's
// turn is next is decided by the start tags.
type keys struct{ db *redis.DB }

func (k keys) job(key string) string        { return k.db.Key("q", "job", key) }
func (k keys) body(key string) string       { return k.db.Key("q", "body", key) }
func (k keys) secret(key string) string     { return k.db.Key("q", "secret", key) }
func (k keys) entry(key string) string      { return k.db.Key("q", "entry", key) }
func (k keys) waiting() string              { return k.db.Key("q", "waiting") }
func (k keys) waitingJobs() string          { return k.db.Key("q", "waiting_jobs") }
func (k keys) waitingBytes() string         { return k.db.Key("q", "waiting_bytes") }
func (k keys) wait(class string) string     { return k.db.Key("q", "wait", class) }
func (k keys) classes() string              { return k.db.Key("q", "classes") }
func (k keys) class(class string) string    { return k.db.Key("q", "class", class) }
func (k keys) caller(caller string) string  { return k.db.Key("q", "caller", caller) }
func (k keys) ids(tenant string) string     { return k.db.Key("q", "ids", tenant) }
func (k keys) leases() string               { return k.db.Key("q", "leases") }
func (k keys) instances() string            { return k.db.Key("q", "instances") }
func (k keys) history(tenant string) string { return k.db.Key("q", "history", tenant) }
func (k keys) entries(tenant string) string { return k.db.Key("q", "entries", tenant) }
func (k keys) lessons() string              { return k.db.Key("q", "lessons") }
func (k keys) events() string               { return k.db.Key("q", "events") }

// live returns the zset of a tenant's live jobs, or of all live jobs with "".
func (k keys) live(tenant string) string {
	if tenant == "" {
		return k.db.Key("q", "live")
	}
	return k.db.Key("q", "live", tenant)
}

func (k keys) undelivered(tenant, client string) string {
	return k.db.Key("q", "undelivered", redis.Pack(tenant, client))
}
