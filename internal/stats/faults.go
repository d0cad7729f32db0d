package stats

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// mostFaults bounds all faults, and mostOfTenant those of one tenant.
	mostFaults, mostOfTenant = 200, 50
	// kept is how long a fault is kept.
	kept = 24 * time.Hour
	// again is how long an equal fault counts as the same one.
	again = time.Minute
	// maxText bounds the reason of a fault and each name in it, in bytes.
	maxText = 500
)

// FaultKind says what went wrong.
type FaultKind string

// The kinds of faults.
const (
	// Lost is a run that ended before its job had; the job runs again, if it may.
	Lost FaultKind = "lost"
	// Failed is a job that has failed.
	Failed FaultKind = "failed"
	// Sick is an instance that answers and does not work, or one that is gone.
	Sick FaultKind = "sick"
	// Refused is a prompt that was not accepted.
	Refused FaultKind = "refused"
)

// Fault is one of them.
type Fault struct {
	// At is when it happened, in milliseconds since the Unix epoch by this hub's clock.
	At int64 `json:"-"`
	// Tenant is whose job it was; empty for an instance's own fault.
	Tenant   string    `json:"-"`
	Kind     FaultKind `json:"kind"`
	Job      string    `json:"job,omitempty"` // its prompt id
	Instance string    `json:"instance,omitempty"`
	Reason   string    `json:"reason"`
}

//go:embed scripts/faults.lua
var faultsLua string

var addFaults = redis.NewScript("faults/add", redis.Write, faultsLua)

// Faults are what has gone wrong lately: lost runs, failed jobs, sick instances and refused prompts.
// It is what a dashboard shows, no log: the oldest faults go, and those of one tenant never take the
// room of others'. They are safe for concurrent use.
type Faults struct {
	db *redis.DB

	mu      sync.Mutex
	waiting []Fault // to be stored
	lately  map[Fault]time.Time
	last    map[string]Fault // by instance
}

// NewFaults returns the faults in a Redis.
func NewFaults(db *redis.DB) *Faults {
	return &Faults{db: db, lately: map[Fault]time.Time{}, last: map[string]Fault{}}
}

// Note notes a fault, which Flush stores. It does not wait.
func (f *Faults) Note(fault Fault) {
	for _, text := range []*string{&fault.Reason, &fault.Job, &fault.Instance} {
		*text = cut(*text)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.lately[fault]) < again {
		return
	}
	if len(f.lately) >= mostFaults {
		clear(f.lately)
	}
	f.lately[fault] = now
	fault.At = now.UnixMilli()
	if fault.Instance != "" && (len(f.last) < 10_000 || f.last[fault.Instance].At > 0) {
		f.last[fault.Instance] = fault
	}
	f.waiting = bounded(append(f.waiting, fault))
}

// bounded drops the oldest faults of the tenant that has most while there are too many.
func bounded(list []Fault) []Fault {
	if len(list) <= mostFaults {
		return list
	}
	counts := map[string]int{}
	first := ""
	for _, fault := range list {
		if counts[fault.Tenant]++; counts[fault.Tenant] > counts[first] {
			first = fault.Tenant
		}
	}
	oldest := slices.IndexFunc(list, func(fault Fault) bool { return fault.Tenant == first })
	return slices.Delete(list, oldest, oldest+1)
}

// cut shortens a text, and keeps it valid UTF-8.
func cut(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
		for !utf8.ValidString(text) && len(text) > maxText-utf8.UTFMax {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// Last is the latest fault of an instance that this hub has noted; its zero value if there
// is none.
func (f *Faults) Last(instance string) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[instance]
}

// Flush stores what was noted. What cannot be stored now is kept for the next time.
func (f *Faults) Flush(ctx context.Context) error {
	f.mu.Lock()
	waiting := f.waiting
	f.waiting = nil
	f.mu.Unlock()
	if len(waiting) == 0 {
		return nil
	}
	args := []any{mostFaults, mostOfTenant, kept.Milliseconds()}
	for _, fault := range waiting {
		text, err := json.Marshal(fault)
		if err != nil {
			return fmt.Errorf("faults: %w", err)
		}
		args = append(args, url.PathEscape(fault.Tenant), string(text))
	}
	if _, err := f.db.Run(ctx, addFaults, args...); err != nil {
		f.mu.Lock()
		f.waiting = append(waiting, f.waiting...)
		for len(f.waiting) > mostFaults {
			f.waiting = bounded(f.waiting)
		}
		f.mu.Unlock()
		return fmt.Errorf("faults: %w", err)
	}
	return nil
}

// List returns the faults that are stored, the newest first.
func (f *Faults) List(ctx context.Context) ([]Fault, error) {
	stored, err := f.db.Client().HGetAll(ctx, f.db.Key("h", "faults")).Result()
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	type numbered struct {
		Fault
		n int
	}
	var list []numbered
	clock := f.db.Clock()
	for field, value := range stored {
		n, err := strconv.Atoi(field)
		if err != nil { // the last number
			continue
		}
		fault, err := decodeFault(value)
		if err != nil {
			continue // of a later version; one odd fault must not hide the others
		}
		at := clock.When(fault.At)
		if time.Since(at) > kept {
			continue
		}
		fault.At = at.UnixMilli()
		list = append(list, numbered{fault, n})
	}
	slices.SortFunc(list, func(a, b numbered) int { return cmp.Compare(b.n, a.n) })
	faults := make([]Fault, len(list))
	for n := range list {
		faults[n] = list[n].Fault
	}
	return faults, nil
}

var errStored = errors.New("faults: cannot be read")

// decodeFault reads a stored fault. Its time is by Redis's clock.
func decodeFault(value string) (Fault, error) {
	at, rest, ok := strings.Cut(value, " ")
	tenant, text, both := strings.Cut(rest, " ")
	if !ok || !both {
		return Fault{}, errStored
	}
	var fault Fault
	err := json.Unmarshal([]byte(text), &fault)
	if err == nil {
		fault.At, err = strconv.ParseInt(at, 10, 64)
	}
	if err == nil {
		fault.Tenant, err = url.PathUnescape(tenant)
	}
	if err != nil {
		return Fault{}, fmt.Errorf("%w: %w", errStored, err)
	}
	return fault, nil
}
