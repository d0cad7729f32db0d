package facade

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// readObject reads the JSON object of a request.
func readObject(w http.ResponseWriter, r *http.Request) (*pyjson.Object, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return nil, false
	}
	v, err := pyjson.Parse(body)
	o, ok := v.(*pyjson.Object)
	if err != nil || !ok {
		http.Error(w, "the body is not a JSON object", http.StatusBadRequest)
		return nil, false
	}
	return o, true
}

// texts returns the strings in an array.
func texts(list pyjson.Array) []string {
	var all []string
	for _, v := range list {
		if text, ok := v.(pyjson.String); ok {
			all = append(all, string(text))
		}
	}
	return all
}

func (s *Server) postPrompt(w http.ResponseWriter, r *http.Request) {
	body, ok := readObject(w, r)
	if !ok {
		return
	}
	p := &Prompt{ID: body.String("prompt_id"), Graph: body.Object("prompt"), Extra: body.Object("extra_data"), client: body.String("client_id")}
	if p.ID == "" {
		p.ID = uuid.NewString()
	}
	if p.Extra == nil {
		p.Extra = &pyjson.Object{}
	}
	if p.Graph != nil {
		p.Outputs = s.outputsOf(p.Graph, texts(body.Array("partial_execution_targets")))
	}
	s.opening.Lock()   // see accept
	s.opening.Unlock() //nolint:staticcheck // waiting is all
	if len(p.Outputs) == 0 {
		answer(w, http.StatusBadRequest, refusal("prompt_no_outputs", "Prompt has no outputs"))
		return
	}
	s.mu.Lock()
	if len(s.pending) >= maxQueue {
		s.mu.Unlock()
		answer(w, http.StatusServiceUnavailable, refusal("queue_full", "The queue is full"))
		return
	}
	p.Number = s.number
	s.number++
	s.pending = append(s.pending, p)
	s.status()
	s.mu.Unlock()
	s.next()
	answer(w, http.StatusOK, dict("prompt_id", pyjson.String(p.ID), "number", pyjson.Int(p.Number), "node_errors", &pyjson.Object{}))
}

func refusal(kind, message string) *pyjson.Object {
	return dict(
		"error", dict("type", pyjson.String(kind), "message", pyjson.String(message), "details", pyjson.String(""), "extra_info", &pyjson.Object{}),
		"node_errors", &pyjson.Object{})
}

// outputsOf returns the ids of a graph's output nodes, only the wanted ones if any are.
func (s *Server) outputsOf(graph *pyjson.Object, wanted []string) []string {
	if judge, ok := s.backend.(outputJudge); ok {
		var outputs []string
		for id := range graph.All() {
			if judge.IsOutput(graph.Object(id).String("class_type")) && (len(wanted) == 0 || slices.Contains(wanted, id)) {
				outputs = append(outputs, id)
			}
		}
		return outputs
	}
	v, err := pyjson.Parse(s.backend.ObjectInfo())
	classes, ok := v.(*pyjson.Object)
	if err != nil || !ok {
		return nil
	}
	var outputs []string
	for id := range graph.All() {
		info := classes.Object(graph.Object(id).String("class_type"))
		is, _ := info.Get("output_node")
		if is == pyjson.Bool(true) && (len(wanted) == 0 || slices.Contains(wanted, id)) {
			outputs = append(outputs, id)
		}
	}
	return outputs
}

// next wakes the goroutine that runs prompts.
func (s *Server) next() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// remaining counts what runs and waits. The caller holds the lock.
func (s *Server) remaining() int {
	n := len(s.pending)
	if s.running != nil || s.foreign {
		n++
	}
	return n
}

// SetForeign tells whether the backend does something that no prompt of this server has
// asked for. Hubs then see a prompt that none of them has sent.
func (s *Server) SetForeign(foreign bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.foreign != foreign {
		s.foreign = foreign
		s.status()
	}
}

// foreignPrompt stands for what the backend does for somebody else.
func foreignPrompt() *Prompt {
	return &Prompt{ID: "foreign", Number: -1, Graph: &pyjson.Object{}, Extra: &pyjson.Object{}}
}

func (s *Server) getRemaining(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer(w, http.StatusOK, dict("exec_info", dict("queue_remaining", pyjson.Int(int64(s.remaining())))))
}

// item is a prompt in the queue and in the history.
func (p *Prompt) item() pyjson.Array {
	return pyjson.Array{pyjson.Int(p.Number), pyjson.String(p.ID), p.Graph, p.Extra, pyjson.Strings(p.Outputs)}
}

func (s *Server) getQueue(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running, pending := pyjson.Array{}, pyjson.Array{}
	if s.running != nil {
		running = append(running, s.running.item())
	} else if s.foreign {
		running = append(running, foreignPrompt().item())
	}
	for _, p := range s.pending {
		pending = append(pending, p.item())
	}
	answer(w, http.StatusOK, dict("queue_running", running, "queue_pending", pending))
}

func (s *Server) postQueue(w http.ResponseWriter, r *http.Request) {
	body, ok := readObject(w, r)
	if !ok {
		return
	}
	clear, _ := body.Get("clear")
	ids := texts(body.Array("delete"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = slices.DeleteFunc(s.pending, func(p *Prompt) bool { return clear == pyjson.Bool(true) || slices.Contains(ids, p.ID) })
	s.status()
}

func (s *Server) postInterrupt(w http.ResponseWriter, r *http.Request) {
	only := ""
	if r.ContentLength != 0 {
		body, ok := readObject(w, r)
		if !ok {
			return
		}
		only = body.String("prompt_id")
	}
	s.Interrupt(only)
}

// Interrupt ends the prompt that runs, if it has the id; any for "".
func (s *Server) Interrupt(only string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil && (only == "" || only == s.running.ID) {
		s.running.cancel()
	}
}

// run executes prompts one after the other.
func (s *Server) run() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		}
		for s.ctx.Err() == nil {
			r, ctx := s.take()
			if r == nil {
				break
			}
			err := s.backend.Execute(ctx, r)
			s.end(ctx, r, err)
		}
	}
}

// take begins the next prompt; nil if none waits.
func (s *Server) take() (*Run, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return nil, nil
	}
	p := s.pending[0]
	s.pending = s.pending[1:]
	ctx, cancel := context.WithCancel(s.ctx)
	s.running = &running{Prompt: p, cancel: cancel, progress: &pyjson.Object{}}
	s.status()
	s.tell(s.running, "execution_start")
	s.tell(s.running, "execution_cached", "nodes", pyjson.Array{})
	return &Run{Prompt: *p, server: s, state: s.running, outputs: &pyjson.Object{}}, ctx
}

// end tells how a prompt has ended and puts it into the history.
func (s *Server) end(ctx context.Context, r *Run, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := s.running
	defer run.cancel()
	if s.closed {
		return
	}
	status := "success"
	var failure *Failure
	switch {
	case err == nil:
		for node, output := range r.outputs.All() {
			s.send(run, "executed", "node", pyjson.String(node), "display_node", pyjson.String(node), "output", output)
		}
		s.tell(run, "execution_success")
	case ctx.Err() != nil:
		status = "error"
		node := run.at()
		s.tell(run, "execution_interrupted", "node_id", pyjson.String(node), "node_type", pyjson.String(run.Class(node)), "executed", pyjson.Array{})
	default:
		status = "error"
		if !errors.As(err, &failure) {
			failure = &Failure{Type: "RuntimeError", Message: err.Error()}
		}
		node := failure.Node
		if run.Class(node) == "" {
			node = run.at()
		}
		about := []any{
			"node_id", pyjson.String(node), "node_type", pyjson.String(run.Class(node)), "executed",
			pyjson.Array{},
			"exception_message", pyjson.String(failure.Message), "exception_type", pyjson.String(failure.Type),
			"traceback",
			pyjson.Array{},
			"current_inputs", &pyjson.Object{}, "current_outputs",
			pyjson.Array{},
		}
		for key, v := range failure.Details.All() {
			about = append(about, key, v)
		}
		s.tell(run, "execution_error", about...)
	}
	s.send(run, "executing", "node", pyjson.Null{})
	s.remember(&ended{Prompt: run.Prompt, entry: dict(
		"prompt", run.item(), "outputs", r.outputs,
		"status", dict("status_str", pyjson.String(status), "completed", pyjson.Bool(status == "success"), "messages", run.messages),
		"meta", &pyjson.Object{})})
	s.running = nil
	s.status()
}

// at is the node that an interruption or an error is reported for.
func (r *running) at() string {
	if r.node != "" {
		return r.node
	}
	return r.Outputs[0]
}

// shortened returns an id as a part of a file name.
func shortened(id string) string { return strings.ReplaceAll(id, "-", "")[:min(len(id), 8)] }
