package queue

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// recordFields are the fields of a job's record from which a job.Job is made. The field v is the
// version of the record, 1. A reader accepts any version, because fields are only ever added and
// unknown ones are ignored.
var recordFields = [...]string{
	"id", "tenant", "caller", "client", "number", "rank", "class", "priority", "state", "fence", "attempts", "kills",
	"lost", "instance", "hub", "upstream", "sid", "lease", "reason", "hash", "progress",
	"created", "started", "finished", "withdrawn", "door", "excuses", "not_before", "ahead", "shape", "paused", "why", "preempted",
	"failed_at", "posted_from", "label", "parent", "parts", "lost_at",
}

// keyOf returns the key at the end of a rank.
func keyOf(rank string) string { return rank[strings.LastIndexByte(rank, ':')+1:] }

// record is a job's hash.
type record map[string]string

// replied reads a record from a script's reply, without its code.
func replied(fields []string) record {
	r := make(record, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		r[fields[i]] = fields[i+1]
	}
	return r
}

// job returns the job of a record.
func (r record) job() (job.Job, error) {
	p := parser{r: r}
	j := job.Job{
		ID:         r["id"],
		Requester:  job.Requester{Tenant: r["tenant"], Caller: r["caller"], Client: r["client"]},
		Place:      r["posted_from"],
		Label:      r["label"],
		Number:     string(pyjson.Finite(pyjson.Number(r["number"]))), // older hubs wrote NaN
		Rank:       r["rank"],
		Key:        keyOf(r["rank"]),
		Class:      r["class"],
		Shape:      r["shape"],
		Why:        r["why"],
		Priority:   int(p.int("priority")),
		State:      job.State(r["state"]),
		Fence:      p.int("fence"),
		Attempts:   int(p.int("attempts")),
		Kills:      int(p.int("kills")),
		Reason:     r["reason"],
		BodyHash:   r["hash"],
		Progress:   p.float("progress"),
		CreatedAt:  p.int("created"),
		StartedAt:  p.int("started"),
		FinishedAt: p.int("finished"),
		Withdrawn:  r["withdrawn"] != "",
		DoorUntil:  p.int("door"),
		Excuses:    int(p.int("excuses")),
		NotBefore:  p.int("not_before"),
	}
	j.Paused = j.State == job.Queued && r["paused"] == "1"
	j.Preempted = r["preempted"] != ""
	j.Parent = r["parent"]
	if j.Whole = r["parts"] == wholeMark; !j.Whole {
		j.Parts = strings.Fields(r["parts"])
	}
	j.Ahead = j.State == job.Leased && r["ahead"] == "1"
	if j.Fence > 0 {
		j.Run = job.Run{
			Key:        j.Key,
			Fence:      j.Fence,
			Instance:   r["instance"],
			Hub:        r["hub"],
			Upstream:   r["upstream"],
			SID:        r["sid"],
			LeaseUntil: p.int("lease"),
		}
	}
	lost, ok := redis.Unpack(r["lost"])
	if !ok {
		p.fail("lost")
	}
	j.Lost, j.LostAt = lost, r.lostAt(len(lost))
	if j.FailedAt, ok = redis.Unpack(r["failed_at"]); !ok {
		p.fail("failed_at")
	}
	if !j.State.Live() && !j.State.Ended() {
		p.fail("state")
	}
	return j, p.err
}

// lostAt returns when each of the last runs was lost, nil if that is not known of all of them: hubs of
// earlier versions do not note it.
func (r record) lostAt(runs int) (at []int64) {
	texts, _ := redis.Unpack(r["lost_at"])
	if len(texts) != runs {
		return nil
	}
	for _, text := range texts {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil
		}
		at = append(at, ms)
	}
	return at
}

// parser parses the numbers of a record and keeps the first error.
type parser struct {
	r   record
	err error
}

func (p *parser) fail(field string) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: field %s of job %s", ErrCorrupt, field, keyOf(p.r["rank"]))
	}
}

func (p *parser) int(field string) int64 {
	text := p.r[field]
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		p.fail(field)
	}
	return n
}

func (p *parser) float(field string) float64 {
	text := p.r[field]
	if text == "" {
		return 0
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		p.fail(field)
	}
	return f
}
