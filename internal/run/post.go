package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/split"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// refusal says that the instance does not take the prompt.
type refusal struct{ *comfyui.Refused }

// errDied says that the instance died when it was given the prompt.
var errDied = errors.New("it died when it got the prompt")

// submit puts the inputs on the instance and posts the prompt. After a nil error the instance has
// it. Errors: refusal, comfyui.ErrUnreachable (it was not sent), errDied; anything else means that
// the prompt is not there either, as far as the instance can be asked.
func (r posting) submit(ctx context.Context) error {
	j := r.Job()
	r.trace.Enter(traces.Inputs, time.Now())
	ctx, stop := r.whileHeard(ctx)
	defer stop()
	graph, err := r.push(ctx)
	if silent(ctx) {
		err = fmt.Errorf("%w: %w", comfyui.ErrUnreachable, errSilent)
	}
	if err != nil {
		return fmt.Errorf("pushing inputs: %w", err)
	}
	if graph, err = respell(graph, r.body.Outputs, r.conn.Abilities()); err != nil {
		return err
	}
	if graph, err = r.narrow(graph); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r.postedAt = time.Now()
	r.trace.Enter(traces.Submit, r.postedAt)
	reply, err := r.conn.Client.Submit(ctx, r.post(graph))
	var refused *comfyui.Refused
	switch {
	case err == nil:
		r.phase = posted
		r.trace.Enter(traces.Run, time.Now())
		r.known(reply.PromptID) // servers before 0.3.45 choose their own
		r.d.Doors.of(j.Key).taken(ctx, catalog.WithoutHubFolder(reply.NodeErrors))
		return nil
	case errors.As(err, &refused):
		shown := *refused
		shown.Body, shown.NodeErrors = catalog.WithoutHubFolder(refused.Body), catalog.WithoutHubFolder(refused.NodeErrors)
		return refusal{&shown}
	case silent(ctx): // it may have the prompt, and is asked when it answers again
		r.conn.Reopen()
		return fmt.Errorf("%w: %w", errSilent, err)
	case errors.Is(err, comfyui.ErrUnclear):
		return r.search(err)
	default:
		return err
	}
}

// push puts the inputs on the instance and returns the graph to post: the same bytes, except for
// the literals of inputs that had to take another name there.
func (r posting) push(ctx context.Context) ([]byte, error) {
	in, err := files.DecodeInputs(r.body.Inputs)
	if err != nil {
		return nil, err
	}
	rewrites, err := r.d.Files.Push(ctx, r.Job().Tenant, in, r.d.target(r.conn))
	if err != nil {
		return nil, err
	}
	var edits []catalog.Edit
	for _, rewrite := range rewrites {
		for _, place := range in.Places {
			if place.Ref == rewrite.From {
				edits = append(edits, catalog.InputFile{Path: place.Path}.Rename(rewrite.Literal(place.Value)))
			}
		}
	}
	return catalog.Splice(dividing(r).graph(), edits)
}

// respell puts the names of models into the instance's own spelling: one that runs on Windows has
// backslashes, and compares byte by byte.
func respell(graph []byte, outputs []string, info *catalog.Info) ([]byte, error) {
	if info == nil {
		return graph, nil
	}
	g, err := catalog.ParseGraph(graph)
	if err != nil {
		return nil, err
	}
	return catalog.Splice(graph, info.Respell(g, outputs))
}

// narrow leaves out what the run's part does not need, for a server that would make all outputs: the
// job may have been split for a newer one.
func (r posting) narrow(graph []byte) ([]byte, error) {
	if !r.division.isApart() || r.conn.Capability().Targets() {
		return graph, nil
	}
	return split.Only(graph, r.division.parts[0].Outputs)
}

// search finds out whether a prompt was queued although the reply did not come: a 500, a timeout or
// a cut connection does not say.
func (r posting) search(cause error) error {
	ctx, cancel := context.WithTimeout(r.d.Ctx, r.d.Settings().ContactTimeout)
	defer cancel()
	for pauses := retry.New(time.Second, time.Second); ctx.Err() == nil; pauses.Wait(ctx) {
		queue, err := r.conn.Client.Queue(ctx)
		if err == nil {
			for _, item := range append(queue.Running, queue.Pending...) {
				if r.is(item) {
					r.phase = posted
					r.trace.Enter(traces.Run, time.Now())
					r.known(item.ID)
					return nil
				}
			}
			found, err := r.conn.Client.HasEnded(ctx, r.Lease().Upstream)
			if err == nil && found {
				r.phase = posted
				r.trace.Enter(traces.Run, time.Now())
				r.mail.put(runEvent{kind: lookAsked}) // finds the end
				return nil
			}
			if err == nil {
				return cause
			}
		}
		switch {
		case instance.Asked(err):
			return err
		case instance.Gone(err): // it read the prompt and died
			return fmt.Errorf("%w: %w", errDied, cause)
		case errors.Is(err, comfyui.ErrUnreachable):
			return err
		}
	}
	return cause
}

// post returns the body of POST /prompt for the instance: the client's graph, its extra_data and
// whatever ComfyUI does not know, with the ids that the instance may see. The mark in extra_data
// tells our prompts from foreign ones and lets any hub adopt the run.
func (r posting) post(graph []byte) []byte {
	j := r.Job()
	var b bytes.Buffer
	b.WriteString(`{"prompt": `)
	b.Write(graph)
	fmt.Fprintf(&b, `, "client_id": %s, "prompt_id": %s`, pyjson.AppendString(nil, j.Run.SID), pyjson.AppendString(nil, j.Run.Upstream))
	if targets := dividing(r).targets(); targets != nil {
		b.WriteString(`, "partial_execution_targets": `)
		b.Write(targets)
	}
	b.WriteString(`, "extra_data": `)
	b.Write(extraFor(r.body, j, r.conn.MaySecrets(), r.division != nil))
	if other := inner(r.body.Other); len(other) > 0 {
		b.WriteString(", ")
		b.Write(other)
	}
	b.WriteString(`}`)
	return b.Bytes()
}

// extraFor joins the client's extra_data, the API keys if the instance may have them, and the hub's
// mark, which says whether the run makes only a part.
func extraFor(body job.Body, j job.Job, secrets, part bool) []byte {
	parts := [][]byte{inner(body.Extra)}
	if secrets {
		parts = append(parts, inner(body.Secrets))
	}
	own := map[string]any{"job": j.Key, "fence": j.Fence}
	if part {
		own["part"] = true
	}
	mark, _ := json.Marshal(own)
	parts = append(parts, []byte(`"comfyhub": `+string(mark)))
	var b bytes.Buffer
	b.WriteByte('{')
	for _, p := range parts {
		if len(p) == 0 {
			continue
		}
		if b.Len() > 1 {
			b.WriteString(", ")
		}
		b.Write(p)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// inner returns what stands between the braces of a raw JSON object.
func inner(object []byte) []byte {
	object = bytes.TrimSpace(object)
	if len(object) < 2 {
		return nil
	}
	return bytes.TrimSpace(object[1 : len(object)-1])
}

// RefusalError returns what the client is told about an instance's refusal: the first node error if
// there is one, worded as real servers do.
func RefusalError(refused *comfyui.Refused) comfyui.Failure {
	t := comfyui.Failure{Type: "ValueError", Message: refused.Message}
	if refused.Details != "" {
		t.Message += ": " + refused.Details
	}
	v, err := pyjson.Parse(refused.NodeErrors)
	if err != nil {
		return t
	}
	nodes, _ := v.(*pyjson.Object)
	for node, v := range nodes.All() {
		o, _ := v.(*pyjson.Object)
		errs := o.Array("errors")
		if len(errs) == 0 {
			continue
		}
		first, _ := errs[0].(*pyjson.Object)
		t.NodeID = node
		t.Message = first.String("message")
		if d := first.String("details"); d != "" {
			t.Message += ": " + d
		}
		return t
	}
	return t
}

// attemptText returns one line about a lost attempt, stored in the job's record.
func attemptText(j job.Job, reason string) string {
	return "attempt " + strconv.Itoa(max(j.Attempts, 1)) + " on " + j.Run.Instance + ": " + reason
}

// notTaken is the result of a run whose prompt never reached the instance.
func (r posting) notTaken(err error) result {
	// The client is shown the reason, and the errors say where the storage is.
	switch {
	case errors.Is(err, files.ErrGone):
		r.log.Warn("an input file is gone", "error", err)
		return result{kind: hopeless, reason: "an input file is gone"}
	case errors.Is(err, files.ErrStorage):
		r.log.Warn("an input file cannot be read", "error", err)
		return result{kind: excused, cause: Storage, reason: "the hub's storage cannot be read", anywhere: true}
	case errors.Is(err, queue.ErrUnavailable):
		return r.queueAway(err)
	}
	r.d.Rests.NotTaken(r.conn, r.Job().Key, false)
	v, cause := lost, Refused
	switch {
	case errors.Is(err, errDied):
		v, cause = killed, Died
	case errors.Is(err, errSilent) && !errors.Is(err, comfyui.ErrUnreachable):
		cause = Unreachable
	case errors.Is(err, comfyui.ErrUnreachable):
		v, cause = excused, Unreachable
	}
	return result{kind: v, cause: cause, died: v == killed, reason: "the instance did not take it: " + err.Error()}
}
