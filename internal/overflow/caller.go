package overflow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// maxAnswer bounds an answer with its files in base64, in bytes. RunPod's have 20 MB at most.
	maxAnswer = 32 << 20
	// maxValues bounds its JSON values: parsed, each takes far more memory than its text.
	maxValues = 100_000
	// maxRefusal bounds what is read of an answer that says no, in bytes.
	maxRefusal = 64 << 10
	// maxReason bounds what is told of an error, in bytes.
	maxReason = 2000
	// callFor bounds a call.
	callFor = time.Minute
)

// caller calls one host, and no other.
type caller struct {
	base   string
	key    string
	client *egress.Client
}

// newCaller returns the caller of what is below an https URL.
func newCaller(base, key string, o egress.Options) (*caller, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the URL is not https://host/path")
	}
	// The operator has named it, so it may be a private address; a name that leads to one may not.
	hosts, err := egress.ParseHosts([]string{u.Host})
	if err == nil {
		err = hosts.Check(u)
	}
	if err != nil {
		return nil, err
	}
	return &caller{strings.TrimRight(base, "/"), key, egress.NewClient(hosts, o)}, nil
}

// statusError is an answer that says no.
type statusError struct {
	status int
	reason string
}

func (e *statusError) Error() string {
	if e.reason == "" {
		return fmt.Sprintf("it answers with status %d", e.status)
	}
	return fmt.Sprintf("it answers with status %d: %s", e.status, e.reason)
}

// unsentError is a call that did not reach anybody.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// call makes a request and reads the answer, a JSON object or nothing. The error is a *statusError, an
// *unsentError, or any other one if nobody knows what has come of it. It has not the key, but perhaps
// an address: it is for the operator.
func (c *caller) call(ctx context.Context, method, path, idempotency string, body []byte) (*pyjson.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	sent := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }})
	header := http.Header{"Accept": {"application/json"}}
	if c.key != "" {
		header.Set("Authorization", "Bearer "+c.key)
	}
	if idempotency != "" {
		header.Set("Idempotency-Key", idempotency)
	}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	answer, err := c.client.Call(ctx, method, c.base+path, header, body)
	if err != nil {
		if of, ok := errors.AsType[*url.Error](err); ok {
			err = of.Err
		}
		if !sent {
			err = &unsentError{err}
		}
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
		return nil, &statusError{answer.StatusCode, reasonIn(text)}
	}
	var meter pyjson.Meter
	text, err := io.ReadAll(io.TeeReader(io.LimitReader(answer.Body, maxAnswer+1), &meter))
	switch {
	case err != nil:
		return nil, fmt.Errorf("its answer ends early: %w", err)
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("its answer has more than %d bytes", maxAnswer)
	case meter.Values() > maxValues:
		return nil, fmt.Errorf("its answer has more than %d values", maxValues)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return &pyjson.Object{}, nil
	}
	v, err := pyjson.Parse(text)
	o, ok := v.(*pyjson.Object)
	if err != nil || !ok {
		return nil, errors.New("its answer is no JSON object")
	}
	return o, nil
}

// reasonIn is what an answer that says no has to say.
func reasonIn(text []byte) string {
	text = bytes.TrimSpace(text)
	if v, err := pyjson.Parse(text); err == nil {
		if o, ok := v.(*pyjson.Object); ok {
			for _, key := range []string{"error", "message", "detail", "title"} {
				if said := o.String(key); said != "" {
					return clip(said)
				}
			}
		}
	}
	return clip(string(text))
}

// clip shortens a text, and leaves nothing in it that is no text.
func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "?")
}

// started judges what has come of asking for a run.
func started(id string, err error) (string, error) {
	var status *statusError
	var unsent *unsentError
	switch {
	case err == nil && (id == "" || len(id) > maxID || strings.ContainsAny(id, "/?#%\x00\r\n ")):
		return "", fmt.Errorf("%w: its answer has no id that can be used", ErrUnclear)
	case err == nil:
		return id, nil
	case errors.As(err, &unsent):
		return "", &RefusedError{Reason: "the endpoint cannot be reached: " + unsent.Error(), Endpoint: true}
	case errors.As(err, &status) && status.status < 500 && status.status != http.StatusRequestTimeout:
		switch status.status {
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
			return "", &RefusedError{Reason: status.Error()}
		}
		return "", &RefusedError{Reason: status.Error(), Endpoint: true}
	}
	return "", fmt.Errorf("%w: %w", ErrUnclear, err)
}

// maxID bounds the id of a run.
const maxID = 200

// known judges what has come of asking about a run.
func known(err error) error {
	if status, ok := errors.AsType[*statusError](err); ok && (status.status == http.StatusNotFound || status.status == http.StatusGone) {
		return fmt.Errorf("%w: %w", ErrNoRun, err)
	}
	return err
}
