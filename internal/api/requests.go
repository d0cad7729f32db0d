package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// What the bodies of the routes may be. Prompts and uploads have bounds of
// their own in the Settings; all else is short, whoever sends it.
var (
	// SmallBody is a question or an order with a few members.
	SmallBody = intake.Class{Limit: 64 << 10, Values: 1000}
	// ListBody is a list of ids: 10,000 of them are some 400 kB.
	ListBody = intake.Class{Limit: 4 << 20, Values: 100_000}
	// SettingsBody is all of a user's settings at once.
	SettingsBody = intake.Class{Limit: 16 << 20, Values: 200_000}
)

// Requests takes in the bodies of requests, and answers those requests that
// fail for reasons that have nothing to do with a route.
type Requests struct {
	Intake *intake.Intake
	// Log is the logger of the settings in force.
	Log func() *slog.Logger
	// Unavailable counts a request that failed because Redis was away.
	Unavailable func()
	// Limited counts a request that was refused because a tenant had reached a
	// limit, by the name of the limit.
	Limited func(limit string)
	// Slot takes a socket's slot, as [stream.Sockets.Hold] says.
	Slot func(ctx context.Context, id stream.Ident) (held context.Context, release func(), err error)
	// Attempts count what callers have shown that lets nobody in.
	Attempts Attempts
	// Audit writes a line to the audit log.
	Audit func(event string, attrs ...any)
	// Recent are the client ids that were used lately from each place.
	Recent RecentClients
	// Route names a request's route for the log: its path may name a file.
	Route func(*http.Request) string
}

// NewRequests takes in the requests for the routes of a table. log gives the logger
// of the settings in force.
func NewRequests(core RequestsCore, log func() *slog.Logger, table *Router) *Requests {
	return &Requests{
		Intake: core.Intake(), Log: log, Unavailable: core.NoteUnavailable, Limited: core.NoteLimited, Audit: core.Audit,
		Route: func(r *http.Request) string { return table.Pattern(PathOf(r)) },
		Slot:  core.Hold,
	}
}

// RequestsCore is what Requests needs of the hub itself.
type RequestsCore interface {
	// Intake holds the bodies.
	Intake() *intake.Intake
	// Hold takes the slot of a socket; see [stream.Sockets.Hold].
	Hold(ctx context.Context, id stream.Ident) (context.Context, func(), error)
	// NoteUnavailable and NoteLimited count, as Requests says.
	NoteUnavailable()
	NoteLimited(limit string)
	// Audit writes a line to the audit log. It must contain neither prompts nor secrets.
	Audit(event string, attrs ...any)
}

// Receive takes a body in, parsing nothing; it must be closed. What is wrong
// with one is answered here; the caller then has nothing left to do.
func (q *Requests) Receive(w http.ResponseWriter, r *http.Request, a Requester, c intake.Class) (*intake.Body, bool) {
	body, err := q.Intake.Receive(r, a.Share(), c)
	if err != nil {
		q.RefuseBody(w, r, a.Share(), c, err)
		return nil, false
	}
	return body, true
}

// load is Receive for a body that is needed whole, with the memory to parse it.
func (q *Requests) load(w http.ResponseWriter, r *http.Request, a Requester, c intake.Class) (body *intake.Body, data []byte, ok bool) {
	body, ok = q.Receive(w, r, a, c)
	if !ok {
		return nil, nil, false
	}
	data, err := body.Load(r.Context())
	if err != nil {
		body.Close()
		q.RefuseBody(w, r, a.Share(), c, err)
		return nil, nil, false
	}
	return body, data, true
}

// ReadBody gives a whole body; done gives its memory back.
func (q *Requests) ReadBody(w http.ResponseWriter, r *http.Request, a Requester, c intake.Class) (data []byte, done func(), ok bool) {
	body, data, ok := q.load(w, r, a, c)
	if !ok {
		return nil, nil, false
	}
	return data, body.Close, true
}

// ReadJSON reads a JSON body whatever its Content-Type says, but for the charset; broken JSON
// is answered with 500, as by ComfyUI. done gives its memory back.
func (q *Requests) ReadJSON(w http.ResponseWriter, r *http.Request, a Requester, c intake.Class) (v pyjson.Value, done func(), ok bool) {
	v, body, ok := q.ReadLargeJSON(w, r, a, c)
	if !ok {
		return nil, nil, false
	}
	return v, body.Close, true
}

// ReadLargeJSON is ReadJSON for a body of any size. It must be closed, and be
// told before that if it is refused.
func (q *Requests) ReadLargeJSON(w http.ResponseWriter, r *http.Request, a Requester, c intake.Class) (v pyjson.Value, body *intake.Body, ok bool) {
	body, data, ok := q.load(w, r, a, c)
	if !ok {
		return nil, nil, false
	}
	data, err := q.decoded(r, a.Share(), c, data)
	if err != nil && !errors.Is(err, errCharset) {
		body.Refuse()
		body.Close()
		q.RefuseBody(w, r, a.Share(), c, err)
		return nil, nil, false
	}
	if err == nil {
		v, err = pyjson.ParseWith(data, body.Rest)
	}
	if err != nil {
		body.Refuse()
		body.Close()
		WriteInternalError(w, r)
		return nil, nil, false
	}
	return v, body, true
}

// ReadOwnJSON is ReadLargeJSON for rooms that answer JSON that cannot be read in their own way: odd does,
// told what the body is and where.
func (q *Requests) ReadOwnJSON(w http.ResponseWriter, r *http.Request, a Requester, c intake.Class, odd func(is string, place int)) (pyjson.Value, *intake.Body, bool) {
	body, err := q.Intake.Receive(r, a.Share(), c)
	var data []byte
	if err == nil {
		if data, err = body.Load(r.Context()); err != nil {
			body.Close()
		}
	}
	if err != nil && !errors.Is(err, intake.ErrDeep) {
		q.RefuseBody(w, r, a.Share(), c, err)
		return nil, nil, false
	}
	if err != nil {
		q.discard(r, a.Share(), c.Limit)
		odd("nested too deeply", 0)
		return nil, nil, false
	}
	v, err := pyjson.ParseWith(data, body.Rest)
	if err != nil {
		body.Refuse()
		body.Close()
		place := 0
		if syntax, ok := errors.AsType[*pyjson.SyntaxError](err); ok {
			place = syntax.Offset
		}
		odd("not JSON", place)
		return nil, nil, false
	}
	return v, body, true
}

// Packed is a stored value, which takes memory once it is read.
type Packed interface {
	// Size is about how many bytes JSON returns.
	Size() int64
	JSON() ([]byte, error)
}

// Unpack reads a stored value, with the memory to parse it, which release gives back.
func (q *Requests) Unpack(ctx context.Context, a Requester, p Packed) (raw []byte, release func(), err error) {
	release, err = q.Intake.Reserve(ctx, a.Share(), 3*p.Size())
	if err != nil {
		return nil, nil, err
	}
	if raw, err = p.JSON(); err != nil {
		release()
		return nil, nil, err
	}
	return raw, release, nil
}

// RefuseBody answers a request whose body was not taken in.
func (q *Requests) RefuseBody(w http.ResponseWriter, r *http.Request, share string, c intake.Class, err error) {
	var large *intake.TooLargeError
	switch {
	case errors.As(err, &large):
		q.discard(r, share, c.Limit)
		WriteTooLarge(w, large.Limit, large.Actual)
	case errors.Is(err, intake.ErrValues):
		q.discard(r, share, c.Limit)
		w.Header().Set("Connection", "close")
		WriteError(w, Error{
			Status: http.StatusRequestEntityTooLarge, Kind: "too_many_values", Message: "The request is too complex",
			Details: "Its body has more than " + strconv.Itoa(c.Values) + " JSON values.",
		})
	case errors.Is(err, intake.ErrInflated):
		w.Header().Set("Connection", "close")
		WriteError(w, Error{
			Status: http.StatusRequestEntityTooLarge, Kind: "body_inflates", Message: "The compressed body grows too much",
			Details: "Send it with less compression, or with none.",
		})
	case errors.Is(err, intake.ErrDeep):
		q.discard(r, share, c.Limit)
		WriteInternalError(w, r) // a RecursionError in ComfyUI
	case errors.Is(err, intake.ErrSlow):
		w.Header().Set("Connection", "close")
		WriteText(w, http.StatusRequestTimeout, "408: Request Timeout")
	case errors.Is(err, intake.ErrBusy):
		w.Header().Set("Connection", "close")
		writeBusy(w)
	case errors.Is(err, intake.ErrBroken):
		w.Header().Set("Connection", "close")
		WriteText(w, http.StatusBadRequest, "400: Bad Request")
	default:
		q.Fail(w, r, err)
	}
}

// discard reads on in a body that is refused. A connection that is closed on a
// client which still sends is reset, and the client never sees the answer.
func (q *Requests) discard(r *http.Request, share string, limit int64) {
	q.Intake.Discard(r, share, limit+limit/8)
}

// writeBusy answers while more bodies are being read than memory allows.
func writeBusy(w http.ResponseWriter) {
	WriteError(w, Error{
		Status: http.StatusServiceUnavailable, Kind: "busy", Message: "The hub is reading too many large requests right now",
		Details: "Nothing was lost. Try again in a few seconds.", RetryAfter: 2,
	})
}
