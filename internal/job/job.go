// Package job says what a job is: its ids, its states, and the one table of
// transitions between them. It knows nothing of Redis, HTTP or ComfyUI and
// imports the standard library only.
package job

import "time"

// DefaultTenant pays for the work where nobody logs in.
const DefaultTenant = "default"

// Job is the hub's record of one prompt, without the heavy parts (those are
// in Body). Times are milliseconds since the Unix epoch by Redis's clock and
// zero when the moment has not come.
type Job struct {
	// Key is the hub's own name for the job: a lowercase UUID v4, unique for
	// ever. Everything inside the hub refers to a job by its key.
	Key string
	// ID is the prompt_id as the client knows it, any string. It is unique
	// per tenant among the jobs that a client can still address; a newer job
	// of the same id takes it over.
	ID string
	Requester
	// Place is where it was posted from, if that says who has posted it: a browser, or an
	// address and a program. Package api defines it.
	Place string
	// Label is what the client has asked to keep with the job; nothing but the room that took
	// it in reads it.
	Label string
	// Number is ComfyUI's queue number as a JSON literal: "7", "2.0", "NaN".
	Number string
	// Rank orders the waiting jobs, smallest first, by plain byte order. It
	// is written once at acceptance and kept through requeues, so that a lost
	// run returns to its old place.
	Rank string
	// Class is the signature of the requirements: jobs of one class can run
	// on the same instances.
	Class string
	// Shape tells how long the job will run, as package schedule encodes it; empty
	// if that is not known.
	Shape string
	// Priority goes from -100 to 100, higher first.
	Priority int
	State    State
	// Fence grows with every attempt; zero before the first.
	Fence int64
	// Attempts counts the runs that were begun and not excused.
	Attempts int
	// Kills counts the instances that died in its runs, each once. It may be the job
	// that kills them.
	Kills int
	// FailedAt are the instances at which runs of it have failed or were lost, without
	// those that were not to blame; the last few, each once.
	FailedAt []string
	// Excuses counts the runs that were lost and not counted as attempts.
	Excuses int
	// Lost holds one line for each of the last runs that were lost, oldest
	// first.
	Lost []string
	// LostAt says when each of them was lost, in milliseconds since the Unix epoch; nil if unknown.
	LostAt []int64
	// Run is the current or last attempt; its zero value before the first.
	Run Run
	// Why says in plain words why its last run went to the instance that it went to.
	Why string
	// Reason says in plain words why the job waits or how it failed.
	Reason string
	// BodyHash identifies what was asked: the same id with the same hash is
	// the same job.
	BodyHash string
	// Progress is what the running node last reported, from 0 to 1.
	Progress float64

	// Ahead says that a leased job waits at its instance behind the run that is there.
	// To its client it still waits.
	Ahead bool
	// Paused says that a waiting job is not given out until its owner resumes it.
	Paused bool
	// Preempted says that a run of it was interrupted for an interactive job. That happens
	// once at most.
	Preempted bool
	// Parts are the keys of the jobs that make its other parts; empty for a job that is made as a whole.
	Parts []string
	// Whole says that it was split in vain, and is made as a whole from now on.
	Whole bool
	// Parent is the key of the job that this is a part of; empty for all that anybody has posted. No
	// listing has a part, and nobody but its parent's holder is told of its end. Its ID is its parent's.
	Parent string

	// Withdrawn says that its client has taken it back while it ran: no listing
	// has it, and its end leaves no trace.
	Withdrawn bool

	CreatedAt  int64
	StartedAt  int64
	FinishedAt int64
	// DoorUntil is until when the client that posted the job may still be
	// given an instance's refusal as the answer; zero once it has its answer.
	DoorUntil int64
	// NotBefore is until when a job that waits again must not run.
	NotBefore int64
}

// AtDoor reports whether the client that posted the job has no answer yet.
// Listings leave such a job out: it may turn out never to have been accepted.
func (j Job) AtDoor(now time.Time) bool { return j.DoorUntil > now.UnixMilli() }

// Seen returns the job as its client sees it: one that waits at an instance waits.
func (j Job) Seen() Job {
	if j.Ahead {
		j.State = Queued
	}
	return j
}

// Run is one attempt of a job on one instance, known by Key and Fence.
type Run struct {
	Key      string
	Fence    int64
	Instance string
	// Hub is the hub (id and boot) that holds the lease.
	Hub string
	// Upstream is the prompt_id that the instance knows.
	Upstream string
	// SID is the client_id given to the instance: its messages for this run
	// go to the socket of that id.
	SID string
	// LeaseUntil is in milliseconds by Redis's clock.
	LeaseUntil int64
	// Took is how long the run has occupied its instance at most, as its holder has measured
	// it; zero if that is not known. It is not stored.
	Took time.Duration
	// Told is how long a run that was taken over has run, as its instance says; zero if that is not
	// known. It is not stored.
	Told time.Duration
}

// Body is the heavy part of a job: what is sent to an instance. All of it is
// raw JSON as the client sent it, because seeds beyond 2^53, key order and
// NaN must come through unchanged.
type Body struct {
	// Prompt is the graph.
	Prompt []byte
	// Extra is extra_data without secrets; "{}" when absent.
	Extra []byte
	// Outputs are the ids of the output nodes to execute.
	Outputs []string
	// Targets is partial_execution_targets as sent, nil when absent.
	Targets []byte
	// Other is an object of the members of POST /prompt that ComfyUI does not know, but
	// custom nodes may; nil when there are none.
	Other []byte
	// Secrets are the API keys from extra_data, a raw JSON object; nil when
	// there are none. They are encrypted at rest and deleted at the end.
	Secrets []byte
	// Inputs pins the files that the graph names, as package files encodes
	// them; nil when there are none.
	Inputs []byte
	// Trace is the W3C traceparent of the request that has posted the prompt; empty if it
	// is not traced.
	Trace string
	// Subject is what the result depends on, as package resultcache encodes it; nil if that is not
	// known, or nobody wants to know.
	Subject []byte
	// Requires is the requirement list that Class is the signature of, as
	// package catalog encodes it.
	Requires []byte
}
