package comfyui

import (
	"errors"
	"fmt"
)

var (
	// ErrUnreachable says that no connection came about: the request was not
	// sent and nothing happened at the instance.
	ErrUnreachable = errors.New("instance unreachable")
	// ErrGone is an ErrUnreachable of which more is known: nothing listens at
	// the instance's port, so its process is dead and so is what it ran. A
	// refusing agent is not enough for it: see [Options.ViaAgent].
	ErrGone = fmt.Errorf("%w: nothing listens at its port", ErrUnreachable)
	// ErrRestarting is an ErrGone that somebody has asked for.
	ErrRestarting = fmt.Errorf("%w: it is being restarted", ErrGone)
	// ErrUnclear says that the request was sent and its fate is not known:
	// status 500 and above, a timeout, a connection cut. After a POST /prompt
	// the prompt may be queued all the same: look before trying elsewhere.
	ErrUnclear = errors.New("fate of the request unclear")
	// ErrHub says that a hub answered where an instance should be. A hub as
	// an instance of itself would send each prompt in a circle for ever.
	ErrHub = errors.New("this is a ComfyHub hub, not a ComfyUI instance")
	// ErrTooLarge says that an answer is larger than any sane one.
	ErrTooLarge = errors.New("answer too large")
	// ErrMalformed says that an answer is not what ComfyUI would give.
	ErrMalformed = errors.New("malformed answer")
)

// Refused is the answer of an instance that does not accept a prompt (status
// 400): the fault is in the prompt, or the instance lacks what it names.
type Refused struct {
	Status int
	// Body is the whole answer.
	Body []byte
	// Type and Message are of the top-level error. Servers before 0.3.28
	// send a bare string, which is then the Message.
	Type, Message string
	// Details is often empty, see NodeErrors.
	Details string
	// NodeErrors is raw JSON: an object by node id, an empty list on old
	// servers, nil when absent.
	NodeErrors []byte
}

func (r *Refused) Error() string {
	if r.Type == "" {
		return fmt.Sprintf("prompt refused (%d): %s", r.Status, r.Message)
	}
	return fmt.Sprintf("prompt refused (%d): %s: %s", r.Status, r.Type, r.Message)
}

// StatusError is an answer below 500 that says the request did not happen: a
// route that is missing (404, 405), a body that is too large (413), a login
// page in front of the server (302, 401, 403).
type StatusError struct {
	Method, Path string
	Status       int
	// Text is the beginning of the body.
	Text string
}

func (e *StatusError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%s %s: status %d", e.Method, e.Path, e.Status)
	}
	return fmt.Sprintf("%s %s: status %d: %s", e.Method, e.Path, e.Status, e.Text)
}
