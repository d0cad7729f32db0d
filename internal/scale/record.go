package scale

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"time"
)

const (
	// graceFor is how long an instance may be away and still count as there: agents restart.
	graceFor = time.Minute
	// lostAfter is how long an instance may be away before its machine is given up.
	lostAfter = 10 * time.Minute
	// goneAfter is how long a machine that was to be removed is away before it counts as gone.
	goneAfter = 15 * time.Second
	// removeAgain is how long a machine may stay that was to be removed before the provider is
	// told again.
	removeAgain = 10 * time.Minute
	// joinWithin is the least time that a machine has for joining, joinFactor how much longer than
	// usual it may take.
	joinWithin, joinFactor = 10 * time.Minute, 3
	// keptStarts is how many starts the usual one is made of.
	keptStarts = 10
	// The pauses after calls that failed, and after starts that did.
	firstRetry, mostRetry = 10 * time.Second, 10 * time.Minute
	firstPause, mostPause = time.Minute, 30 * time.Minute
	// maxNames bounds the instances of a class that are told apart.
	maxNames = 2 * MaxMachines
)

// record is what is known about a class. Times are in milliseconds by Redis's clock.
type record struct {
	// Told is the number that the provider was told last; -1 if that is not known.
	Told     int   `json:"told"`
	Sequence int64 `json:"sequence,omitempty"`
	// Change is one that the provider is being told.
	Change *Change `json:"change,omitempty"`
	// Sealed are the tokens of its machines.
	Sealed string `json:"sealed,omitempty"`
	// Asked is when each machine was asked for that has not joined yet.
	Asked []int64 `json:"asked,omitempty"`
	// Took is how long the last starts took.
	Took []int64 `json:"took,omitempty"`
	// Machines are the instances that were seen, by name.
	Machines map[string]machine `json:"machines,omitempty"`
	// FailedCalls and FailedStarts are how many failed in a row; until Retry there is no other
	// call, and until Pause no other start. Error is why the last call failed.
	FailedCalls  int    `json:"failed_calls,omitempty"`
	FailedStarts int    `json:"failed_starts,omitempty"`
	Retry        int64  `json:"retry,omitempty"`
	Pause        int64  `json:"pause,omitempty"`
	Error        string `json:"error,omitempty"`
	// Day counts from 1970 by UTC. Spent is the money of that day, up to the time Counted.
	Day     int64   `json:"day,omitempty"`
	Spent   float64 `json:"spent,omitempty"`
	Counted int64   `json:"counted,omitempty"`
	// Wanted, Have, Leaving and Why are what was decided last.
	Wanted  int    `json:"wanted"`
	Have    int    `json:"have"`
	Leaving int    `json:"leaving,omitempty"`
	Why     string `json:"why,omitempty"`
}

// machine is what is known about an instance.
type machine struct {
	Seen int64 `json:"seen"`
	// Drained is when it was decided that it goes, and Removed when the provider was told; 0 if
	// not.
	Drained int64 `json:"drained,omitempty"`
	Removed int64 `json:"removed,omitempty"`
	// Doomed says that a call to remove it has failed, and may be acted on yet.
	Doomed bool `json:"doomed,omitempty"`
}

func decode(text string) record {
	r := record{Told: -1}
	if text != "" && json.Unmarshal([]byte(text), &r) != nil {
		r = record{Told: -1} // of another version: the fleet is as it is
	}
	if r.Machines == nil {
		r.Machines = map[string]machine{}
	}
	return r
}

func (r record) encode() string {
	text, err := json.Marshal(r)
	if err != nil {
		return ""
	}
	return string(text)
}

// day is how long one is, in milliseconds.
const day = int64(24 * time.Hour / time.Millisecond)

// dayOf counts from 1970 by UTC.
func dayOf(now int64) int64 { return now / day }

// spentOn is the record of a class that is no longer configured: what it has spent that day, or nothing.
func (r record) spentOn(today int64) string {
	if r.Day != today || r.Spent == 0 {
		return ""
	}
	return record{Told: -1, Day: r.Day, Spent: r.Spent}.encode()
}

// names are those of the machines, sorted.
func (r record) names() []string { return slices.Sorted(maps.Keys(r.Machines)) }

// start is how long a start usually takes, 0 if none was seen.
func (r record) start() time.Duration {
	var sum int64
	for _, took := range r.Took {
		sum += took
	}
	if sum == 0 {
		return 0
	}
	return time.Duration(sum/int64(len(r.Took))) * time.Millisecond
}

// done notes that the provider has taken the change.
func (r *record) done(now int64) {
	for range r.Change.Start {
		r.Asked = append(r.Asked, now)
	}
	for name, m := range r.Machines { // what comes of an earlier call now is too late
		m.Doomed = false
		r.Machines[name] = m
	}
	for _, name := range r.Change.Remove {
		m := r.Machines[name]
		m.Removed = now
		r.Machines[name] = m
	}
	r.Told, r.Change, r.Sealed, r.FailedCalls, r.Retry, r.Error = r.Change.Wanted, nil, "", 0, 0, ""
}

// failed notes that the provider has not. What has become of the change nobody knows, so the next
// one says everything again.
func (r *record) failed(now int64, err error) {
	if unclear(err) {
		for _, name := range r.Change.Remove {
			m := r.Machines[name]
			m.Doomed = true
			r.Machines[name] = m
		}
	}
	r.Told, r.Change, r.Sealed, r.Error = -1, nil, "", clip(err.Error())
	r.Retry = now + pauseAfter(r.FailedCalls, firstRetry, mostRetry)
	r.FailedCalls++
}

// unclear reports whether a call that failed may be acted on later: no answer has come.
func unclear(err error) bool {
	op, ofNetwork := errors.AsType[*net.OpError](err)
	if ofNetwork && op.Op == "dial" {
		return false
	}
	late, ok := errors.AsType[net.Error](err)
	return ofNetwork || ok && late.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// pauseAfter is the pause after a failure that so many came before, in milliseconds.
func pauseAfter(failures int, first, most time.Duration) int64 {
	return min(first<<min(failures, 10), most).Milliseconds()
}
