package a1111

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// unbegun is how long a request that was interrupted before the server began with it is
// waited for.
const unbegun = time.Minute

// task is a request that the server works on.
type task struct {
	run  *facade.Run
	node string
	// The lock of the life guards the rest. others is what the server did for somebody else
	// when it was last seen, before the request.
	others progress
	// begun means that the server works on the
	// request, shown is the preview that was shown last.
	begun bool
	shown string
	// asked is when the server was asked last, seen its last answer about the request.
	asked time.Time
	seen  *pyjson.Object
	// order is what a client wants the server to do with the request, empty for nothing.
	order string
}

// see takes in what the server does. What somebody else has it do first is not of the
// request: that began at another time, which is told in seconds, or was further.
func (t *task) see(p progress) {
	t.asked = time.Now()
	if t.others.busy && p.busy && p.began == t.others.began && p.value >= t.others.value {
		t.others = p
		return
	}
	t.others = progress{}
	if !p.busy {
		return
	}
	t.begun, t.seen = true, p.answer
	t.run.Progress(t.node, p.value, p.most)
	if p.preview == "" || p.preview == t.shown {
		return
	}
	t.shown = p.preview
	if jpeg := jpegOf(p.preview); jpeg != nil {
		t.run.Preview(jpeg)
	}
}

// Execute implements [facade.Backend].
func (l *life) Execute(ctx context.Context, r *facade.Run) error {
	for _, node := range r.Outputs {
		if err := l.request(ctx, r, node); err != nil {
			if errors.Is(err, errGone) && ctx.Err() == nil {
				l.lose()
				<-ctx.Done() // the facade closes: nobody must be told how the prompt ends
			}
			return err
		}
	}
	return nil
}

// request does the request of a node.
func (l *life) request(ctx context.Context, r *facade.Run, node string) error {
	class := r.Class(node)
	body, err := l.body(r, node)
	if err != nil {
		return err
	}
	t := &task{run: r, node: node}
	l.begin(ctx, t)
	defer l.begin(ctx, nil)
	r.Progress(node, 0, 1)
	answer, err := l.post(ctx, t, Path(class), body)
	var refused *statusError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refused):
		failure := &facade.Failure{Node: node, Type: refused.kind, Message: refused.message}
		if refused.answer != nil {
			failure.Details = dict(refusalKey, dict("status", pyjson.Int(int64(refused.status)), "answer", refused.answer))
		}
		return failure
	case err != nil:
		return err
	}
	o, ok := answer.(*pyjson.Object)
	if !ok {
		return &facade.Failure{Node: node, Type: "RuntimeError", Message: "the A1111 server gives no answer of its API"}
	}
	return show(r, node, o)
}

// begin notes what runs, nil for nothing.
func (l *life) begin(ctx context.Context, t *task) {
	var p progress
	if t != nil {
		l.server.SetForeign(false)
		p, _ = l.client.progress(ctx, false) // one that cannot be asked will not answer the request either
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t != nil {
		t.others = p
		l.begun++
	}
	l.task = t
}

// post sends a request and waits for its answer; one that is interrupted, until the server
// has left it.
func (l *life) post(ctx context.Context, t *task, path string, body []byte) (pyjson.Value, error) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	type outcome struct {
		v   pyjson.Value
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		v, err := l.client.do(sending, http.MethodPost, path, body, maxAnswer)
		done <- outcome{v, err}
	}()
	wait := func(until <-chan time.Time) (o outcome, ok bool) {
		select {
		case o = <-done:
			return o, true
		case <-l.lost:
		case <-l.ended:
		case <-until:
			return o, false
		}
		cancel()
		<-done
		return outcome{err: errGone}, true
	}
	defer cancel()
	select {
	case o := <-done:
		return o.v, o.err
	case <-l.lost:
		cancel()
		<-done
		return nil, errGone
	case <-ctx.Done():
	}
	since := time.Now()
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	for {
		l.mu.Lock()
		begun := t.begun
		l.mu.Unlock()
		// More than once: the server forgets it where it begins a request.
		if begun {
			_ = l.client.order(context.WithoutCancel(ctx), "interrupt")
		}
		if o, ok := wait(tick.C); ok {
			return o.v, o.err
		}
		if !begun && time.Since(since) > unbegun {
			cancel()
			<-done
			return nil, ctx.Err()
		}
	}
}

// body is the request of a node as the server takes it.
func (l *life) body(r *facade.Run, node string) ([]byte, error) {
	wrong := func(format string, args ...any) error {
		return &facade.Failure{Node: node, Type: "ValueError", Message: fmt.Sprintf(format, args...)}
	}
	v, err := pyjson.Parse([]byte(r.Graph.Object(node).Object("inputs").String(InputPayload)))
	if _, ok := v.(*pyjson.Object); err != nil || !ok {
		return nil, wrong("payload: must be a JSON object")
	}
	names := chained(r.Graph, node, InputImages, inputImage)
	room := int64(maxAnswer)
	if v, err = put(v, func(place int) (string, error) {
		if place >= len(names) {
			return "", wrong("payload: there is no picture %d", place)
		}
		text, err := input(r, names[place], room)
		room -= int64(len(text))
		return text, err
	}); err != nil {
		return nil, err
	}
	payload, _ := v.(*pyjson.Object)
	if err := l.settle(r, node, payload); err != nil {
		return nil, err
	}
	return pyjson.Marshal(payload), nil
}

// settle sets what holds for this request only. It must hold for no other one, whatever the
// client says: the next is another user's.
func (l *life) settle(r *facade.Run, node string, payload *pyjson.Object) error {
	can := l.can.Load()
	settings := &pyjson.Object{}
	for key, v := range payload.Object(overrides).All() {
		settings.Set(key, v)
	}
	if kept, err := pyjson.Parse([]byte(r.Graph.Object(node).Object("inputs").String(InputOptions))); err == nil {
		o, _ := kept.(*pyjson.Object)
		for key, v := range o.All() {
			if !settings.Has(key) && (can.options[key] || len(can.options) == 0) { // A1111 fails for one that it has not
				settings.Set(key, v)
			}
		}
	}
	if names := chained(r.Graph, node, InputCheckpoint, InputCheckpoint); len(names) > 0 {
		title := can.titles[names[0]]
		if title == "" { // the server would use whatever is loaded
			return &facade.Failure{Node: node, Type: "ValueError", Message: fmt.Sprintf("the server has no checkpoint %q", names[0])}
		}
		settings.Set(overrideCheckpoint, pyjson.String(title))
	}
	if settings.Len() == 0 {
		return nil
	}
	payload.Set(overrides, settings)
	// Older versions load the checkpoint before again, which takes long.
	onlyCheckpoint := settings.Len() == 1 && settings.Has(overrideCheckpoint)
	payload.Set(overridesRestore, pyjson.Bool(!onlyCheckpoint))
	return nil
}

// input reads a picture that a prompt names, of at most room bytes in base64.
func input(r *facade.Run, name string, room int64) (string, error) {
	file, err := r.Input(name)
	if err != nil {
		return "", fmt.Errorf("a picture is not there: %w", err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, room/4*3+1))
	if err != nil {
		return "", err
	}
	if int64(len(data)) > room/4*3 {
		return "", errors.New("the pictures of the request are too large")
	}
	return base64.StdEncoding.EncodeToString(data), nil
}

// prefix begins the names of pictures.
const prefix = "A1111"

// show keeps an answer: its pictures as files, the rest as one text.
func show(r *facade.Run, node string, answer *pyjson.Object) error {
	rest := &pyjson.Object{}
	for key, v := range answer.All() {
		switch key {
		case "images", "image":
			list, _ := v.(pyjson.Array)
			if key == "image" {
				list = pyjson.Array{v}
			}
			if err := save(r, node, list); err != nil {
				return err
			}
		default:
			// What the request had is repeated: its pictures are there already.
			rest.Set(key, mapTexts(v, func(text string) pyjson.Value {
				if _, _, is := pictureIn(text); is {
					return pyjson.Null{}
				}
				return pyjson.String(text)
			}))
		}
	}
	return r.Show(dict(node, dict(listRest, pyjson.Array{pyjson.String(pyjson.Marshal(rest))})))
}

// save saves the pictures of an answer as they have come.
func save(r *facade.Run, node string, pictures pyjson.Array) error {
	for _, v := range pictures {
		text, ok := v.(pyjson.String)
		if !ok {
			continue // null
		}
		content, f, ok := pictureIn(string(text))
		if !ok {
			return &facade.Failure{Node: node, Type: "RuntimeError", Message: "the A1111 server gives a picture of no known format"}
		}
		data, err := base64.StdEncoding.DecodeString(content)
		if err == nil {
			err = r.Save(node, prefix, f.extension, bytes.NewReader(data))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
