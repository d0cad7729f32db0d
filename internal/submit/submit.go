// Package submit takes prompts into the queue, and takes them out again.
package submit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/classes"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/ends"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/rules"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// ErrTenantStorage says that a tenant's files take all that they may.
var ErrTenantStorage = errors.New("hub: the tenant's files have reached their limit")

// MaxLabel bounds [Submission.Label], in bytes: listings keep the labels of thousands of jobs.
const MaxLabel = 8 << 10

// Submission is a prompt that somebody wants to run. The byte slices must not be changed.
type Submission struct {
	job.Requester
	// Place is where it is posted from, see [job.Job].
	Place string
	// Label is kept with the job, see [job.Job]. It may have [MaxLabel] bytes.
	Label string
	// Once says that there is one job of the ID, whatever prompt is posted under it: any other
	// posted while it is there finds it, see [Accepted.Existing].
	Once bool
	// ID is the prompt id that the client chose; empty for a new one. The same prompt sent twice
	// under one id is one job.
	ID    string
	Graph *catalog.Graph
	// Targets is ComfyUI's partial_execution_targets; nil runs all outputs.
	Targets []byte
	// Extra is ComfyUI's extra_data, an object without the client id and secrets.
	Extra []byte
	// Other is an object of what else the prompt says to custom nodes; nil for nothing.
	Other []byte
	// Secrets are the API keys of extra_data as an object; nil without any.
	Secrets []byte
	// Source says which of Comfy's own programs sends the prompt; empty for none.
	Source string
	// Priority goes from -100 to 100; values outside are clamped.
	Priority int
	// Band is where the job goes unless that is above its tenant's band; empty means the tenant's.
	Band job.Band
	// Number is the place in the queue that the client asks for; nil for none.
	Number *float64
	// Callback says where the job's events go; nil for nowhere.
	Callback *Callback
	// Front asks for a place before all waiting jobs. It has no effect together with a Number.
	Front bool
}

// Accepted is a job that is safe: the queue has it.
type Accepted struct {
	ID string
	// Existing says that the job had been accepted before.
	Existing bool
	// Number is ComfyUI's queue number.
	Number pyjson.Number
	// NodeErrors say why some outputs will not run, as ComfyUI does.
	NodeErrors *pyjson.Object
	// Position is the place in the queue, counting from 0; -1 for a job that is not waiting or
	// whose place is unknown.
	Position int
	// ETA is how long it will take until it is finished, -1 if unknown.
	ETA time.Duration
	// CreatedAt is when the queue took it, in milliseconds since the Unix epoch.
	CreatedAt int64
}

// Inputs are the tenants' files, as far as prompts name them.
type Inputs interface {
	classes.Resolver
	Upload(ctx context.Context, tenant string, ref job.FileRef, overwrite bool, r io.Reader) (job.FileRef, error)
	Pin(ctx context.Context, tenant string, refs []job.FileRef) (files.Pins, error)
	Taken(ctx context.Context, tenant string) (int64, error)
}

// Submitter takes prompts from every dialect.
type Submitter struct {
	Queue *queue.Queue
	// Put is queue.Enqueue.
	Put      func(context.Context, queue.Submission) (queue.Accepted, error)
	Classes  *classes.Classes
	Dispatch *dispatch.Dispatcher
	Streams  *stream.Streams
	Store    Inputs
	Held     *files.Held
	LimitsOf func(tenant string) config.TenantLimits
	// RulesOf returns the rules for what a tenant may run.
	RulesOf func(tenant string) rules.Rules
	// Door opens the door of a job that is about to be queued.
	Door func(key string) Door
	// Patience is how long an instance may take to accept or refuse a prompt.
	Patience func() time.Duration
	// MaxUpload bounds a file inside a prompt, in bytes.
	MaxUpload func() int64
	Fetcher   *Fetcher
	Callbacks *Callbacks
	// Traces returns the current tracer, nil for none.
	Traces func() *traces.Tracer
	// Refused is told of prompts that were not accepted.
	Refused func(r job.Requester, err error)
	Log     func() *slog.Logger
}

// Submit checks a prompt as ComfyUI would, puts it into the queue and calls answer, once. answer
// must send the client its answer before it returns: messages of the run follow then, and several
// clients lose a prompt whose messages arrive before they have read its id. That is so for an
// error, too: a job may be queued although its client is told of an error.
//
// The errors are a *[catalog.Answer] for a prompt that ComfyUI would refuse or an instance has, a
// *[refusal.Refusal], or one of Redis.
func (s *Submitter) Submit(ctx context.Context, p Submission, answer func(Accepted, error)) {
	// At once: it says nothing about an end that the client is told while its prompt is checked.
	s.Streams.PostedNext(stream.KeyOf(p.Requester), p.ID)
	tell := func(accepted Accepted, err error) {
		err = refusalOf(err)
		answer(accepted, err)
		if err != nil {
			s.Refused(p.Requester, err)
		}
	}
	queued, verdict, err := s.checked(ctx, p)
	if err != nil {
		tell(Accepted{}, err)
		return
	}
	door := s.Door(queued.Key)
	defer door.Close()
	tell(s.enqueue(ctx, queued, verdict, door))
}

// TakeNumber moves a tenant's queue number on, as ComfyUI does for a prompt that it refuses. A
// number that is not taken does no harm.
func (s *Submitter) TakeNumber(ctx context.Context, tenant string) {
	if _, err := s.Queue.TakeNumber(ctx, tenant); err != nil {
		s.Log().Debug("cannot advance the prompt number", "error", err)
	}
}

// checked makes a job from a prompt that passes the checks.
func (s *Submitter) checked(ctx context.Context, p Submission) (queue.Submission, *catalog.Verdict, error) {
	if err := s.Callbacks.check(p.Callback); err != nil {
		return queue.Submission{}, nil, err
	}
	if err := s.checkStorage(ctx, p.Tenant); err != nil {
		return queue.Submission{}, nil, err
	}
	graph, with, err := s.unpack(ctx, p.Tenant, p.Graph)
	if err != nil {
		return queue.Submission{}, nil, err
	}
	defer with.close()
	have := &classes.Lookup{Store: s.Store, Ctx: ctx, Tenant: p.Tenant, Known: with.known()}
	// The catalog is one and the same for all steps: a merge may come in between.
	c, verdict, err := s.Classes.Validate(ctx, p.Tenant, catalog.Prompt{
		Graph: graph, Targets: p.Targets, Known: have.Has, OwnFiles: p.Tenant != job.DefaultTenant,
	})
	if err != nil {
		return queue.Submission{}, nil, err
	}
	if have.Err != nil {
		return queue.Submission{}, nil, have.Err // a file that could not be asked about may be there
	}
	if !verdict.Accepted() {
		return queue.Submission{}, nil, verdict.Answer
	}
	if against := s.RulesOf(p.Tenant).Check(verdict.Graph.Root()); len(against) > 0 {
		return queue.Submission{}, nil, catalog.Forbid(verdict, against[:min(len(against), classes.MaxObjections)])
	}
	needs := c.Requirements(verdict.Graph, verdict.Outputs, have.Has)
	paid := s.Classes.APINodes(verdict, p.Secrets)
	needs.Secrets = len(paid) > 0
	if answer := s.Classes.Barred(verdict, needs, p.Tenant, paid); answer != nil {
		return queue.Submission{}, nil, answer
	}
	read := c.InputFiles(verdict.Graph, verdict.Outputs, have.Has)
	if err := s.keep(ctx, p.Tenant, with, read); err != nil {
		return queue.Submission{}, nil, err
	}
	pins, err := s.Pin(ctx, p.Tenant, verdict.Graph, read)
	if err != nil {
		return queue.Submission{}, nil, err
	}
	q := queue.Submission{
		Key: uuid.NewString(), ID: p.ID, Requester: p.Requester, Place: p.Place, Label: p.Label,
		Class: needs.Signature(), Shape: schedule.Shape(verdict.Graph.Root()), Priority: p.Priority, Band: s.BandOf(p), Number: p.Number, Front: p.Front,
		Body: job.Body{
			Prompt: verdict.Graph.Bytes(), Extra: withClient(p.Extra, p.Client),
			Outputs: verdict.Outputs, Targets: p.Targets, Other: p.Other, Secrets: p.Secrets,
			Inputs: pins, Requires: needs.Encode(), Trace: s.Traces().Parent(ctx),
		},
	}
	if q.ID == "" {
		q.ID = q.Key
	}
	if subject, known := s.subject(p.Tenant, verdict, pins, p.Other); known && len(paid) == 0 {
		q.Body.Subject = subject.Encode()
	}
	q.Callback = (*queue.Callback)(p.Callback)
	// What was posted, not what became of it, which depends on the classes that this hub knows.
	q.BodyHash = hashOf(slices.Concat([][]byte{graph.Bytes(), q.Body.Extra, q.Body.Targets}, otherParts(p.Other), p.Callback.parts())...)
	if p.Once {
		q.BodyHash = hashOf([]byte("once"), []byte(q.ID))
	}
	q.Body.Extra = stamped(q.Body.Extra, p.Source, s.Dispatch.Instances.Version()) // differs each time, so it is not part of the hash
	if verdict.Doubtful && s.Dispatch.Openings.HasIdle(needs, p.Tenant) {
		q.Door = doorLife
	}
	return q, verdict, nil
}

// enqueue puts a job into the queue and, if need be, waits for an instance's word on it.
func (s *Submitter) enqueue(ctx context.Context, q queue.Submission, verdict *catalog.Verdict, door Door) (Accepted, error) {
	// Before it is queued: the run may begin before Enqueue has returned, and a client without a
	// socket yet must be sent all of it.
	k := stream.KeyOf(q.Requester)
	s.Streams.Posted(k, time.Now())
	repeat := s.repeat(ctx, q)
	if repeat != nil {
		q.Door = 0 // no instance need be asked
	}
	accepted, err := s.Put(ctx, q)
	if err != nil {
		return Accepted{}, err
	}
	if repeat != nil && !accepted.Existing {
		s.Dispatch.Repeats.Give(ctx, accepted.Job, repeat)
	}
	j, position, nodeErrors := accepted.Job, accepted.Position, verdict.NodeErrors
	s.Dispatch.Arrived(j, position)
	if j.DoorUntil > 0 {
		if accepted.Existing {
			door = nil // an earlier request is waiting there
		}
		answer, err := s.ask(ctx, j, door)
		if err != nil {
			return Accepted{}, err
		}
		nodeErrors = nodeErrorsOf(answer, nodeErrors)
	}
	if accepted.Existing && j.State.Ended() {
		s.replay(ctx, j)
	} else {
		s.Streams.Statuses.Changed(j.Caller)
	}
	if accepted.Existing || j.DoorUntil > 0 { // it may have moved on since
		position = -1
		if now, err := s.Queue.Get(ctx, j.Key); err == nil {
			if positions, err := s.Queue.Positions(ctx, now); err == nil {
				position = positions[0]
			}
		}
	}
	eta := s.Dispatch.Forecasts.Accepted(ctx, j, position)
	return Accepted{ID: j.ID, Existing: accepted.Existing, Number: pyjson.Number(j.Number), NodeErrors: nodeErrors, Position: position, ETA: eta, CreatedAt: j.CreatedAt}, nil
}

// replay sends the messages of an ended job again because the same prompt was posted again by a
// client that has confirmed the end: it may have missed the answer.
func (s *Submitter) replay(ctx context.Context, j job.Job) {
	k := stream.KeyOf(j.Requester)
	if s.Streams.Owes(k, j.ID, j.Key) {
		return
	}
	frames := ends.Retold(ctx, s.Queue, j, ends.EndGrace*ends.EndPatience)
	if len(frames) == 0 {
		return
	}
	// As long as nobody knows that the client has it, it may also be on its way from another hub.
	if ended, err := s.Queue.EndedOf(ctx, []string{j.Key}); err != nil || len(ended) == 1 && !ended[0].Delivered {
		s.Streams.EndedElsewhere(k, j.ID, j.Key, frames...)
		return
	}
	s.Streams.Ended(k, stream.Attempt{Prompt: j.ID}, frames...)
}

// otherParts returns what the hash of a prompt includes of its other members: nothing if there are
// none, so that the hash is that of earlier versions.
func otherParts(other []byte) [][]byte {
	if other == nil {
		return nil
	}
	return [][]byte{[]byte("other"), other}
}

// hashStep is how many bytes are hashed at once. Hashing cannot be interrupted, and the whole hub
// waits for it when a garbage collection begins.
const hashStep = 256 << 10

// hashOf identifies what was asked for.
func hashOf(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":"))
		for step := range slices.Chunk(p, hashStep) {
			h.Write(step)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// checkStorage refuses a tenant whose files have reached their limit.
func (s *Submitter) checkStorage(ctx context.Context, tenant string) error {
	most := s.LimitsOf(tenant).Storage
	if most == 0 {
		return nil
	}
	taken, err := s.Store.Taken(ctx, tenant)
	if err == nil && taken >= most {
		err = ErrTenantStorage
	}
	return err
}

// BandOf returns the band of a prompt: the one that it asks for, but none above its tenant's.
func (s *Submitter) BandOf(p Submission) job.Band {
	band := s.LimitsOf(p.Tenant).Band
	if p.Band != "" && p.Band.Below(band) {
		return p.Band
	}
	return band
}
