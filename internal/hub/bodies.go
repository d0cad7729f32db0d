package hub

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// What the bodies of the routes may be. Prompts and uploads have bounds of
// their own in the Settings; all else is short, whoever sends it.
var (
	// smallBody is a question or an order with a few members.
	smallBody = intake.Class{Limit: 64 << 10, Values: 1000}
	// listBody is a list of ids: 10,000 of them are some 400 kB.
	listBody = intake.Class{Limit: 4 << 20, Values: 100_000}
	// settingsBody is all of a user's settings at once.
	settingsBody = intake.Class{Limit: 16 << 20, Values: 200_000}
)

// requests takes in the bodies of requests, and answers those requests that
// fail for reasons that have nothing to do with a route.
type requests struct {
	intake *intake.Intake
	// log is the logger of the settings in force.
	log func() *slog.Logger
	// away counts a request that failed because Redis was away.
	away func()
	// route names a request's route for the log: its path may name a file.
	route func(*http.Request) string
}

// receive takes a body in, parsing nothing; it must be closed. What is wrong
// with one is answered here; the caller then has nothing left to do.
func (q *requests) receive(w http.ResponseWriter, r *http.Request, a asker, c intake.Class) (*intake.Body, bool) {
	body, err := q.intake.Receive(r, a.share(), c)
	if err != nil {
		q.refuseBody(w, r, a.share(), c, err)
		return nil, false
	}
	return body, true
}

// readBody is receive for a body that is needed whole, with the memory to parse
// it; done gives that back.
func (q *requests) readBody(w http.ResponseWriter, r *http.Request, a asker, c intake.Class) (data []byte, done func(), ok bool) {
	body, ok := q.receive(w, r, a, c)
	if !ok {
		return nil, nil, false
	}
	data, err := body.Load(r.Context())
	if err != nil {
		body.Close()
		q.refuseBody(w, r, a.share(), c, err)
		return nil, nil, false
	}
	return data, body.Close, true
}

// readJSON reads a JSON body whatever its Content-Type says; broken JSON is
// answered with 500, as by ComfyUI.
func (q *requests) readJSON(w http.ResponseWriter, r *http.Request, a asker, c intake.Class) (v pyjson.Value, done func(), ok bool) {
	body, done, ok := q.readBody(w, r, a, c)
	if !ok {
		return nil, nil, false
	}
	v, err := pyjson.Parse(body)
	if err != nil {
		done()
		writeTrouble(w, r)
		return nil, nil, false
	}
	return v, done, true
}

// refuseBody answers a request whose body was not taken in.
func (q *requests) refuseBody(w http.ResponseWriter, r *http.Request, share string, c intake.Class, err error) {
	var large *intake.TooLargeError
	switch {
	case errors.As(err, &large):
		q.discard(r, share, c.Limit)
		writeTooLarge(w, large.Limit, large.Actual)
	case errors.Is(err, intake.ErrValues):
		q.discard(r, share, c.Limit)
		w.Header().Set("Connection", "close")
		writeHubError(w, hubError{
			status: http.StatusRequestEntityTooLarge, kind: "too_many_values", message: "The request is too complex",
			details: "Its body has more than " + strconv.Itoa(c.Values) + " JSON values.",
		})
	case errors.Is(err, intake.ErrInflated):
		w.Header().Set("Connection", "close")
		writeHubError(w, hubError{
			status: http.StatusRequestEntityTooLarge, kind: "body_inflates", message: "The compressed body grows too much",
			details: "Send it with less compression, or with none.",
		})
	case errors.Is(err, intake.ErrDeep):
		q.discard(r, share, c.Limit)
		writeTrouble(w, r) // a RecursionError in ComfyUI
	case errors.Is(err, intake.ErrSlow):
		w.Header().Set("Connection", "close")
		writeText(w, http.StatusRequestTimeout, "408: Request Timeout")
	case errors.Is(err, intake.ErrBusy):
		w.Header().Set("Connection", "close")
		writeBusy(w)
	case errors.Is(err, intake.ErrBroken):
		w.Header().Set("Connection", "close")
		writeText(w, http.StatusBadRequest, "400: Bad Request")
	default:
		q.fault(w, r, err)
	}
}

// discard reads on in a body that is refused. A connection that is closed on a
// client which still sends is reset, and the client never sees the answer.
func (q *requests) discard(r *http.Request, share string, limit int64) {
	q.intake.Discard(r, share, limit+limit/8)
}

// writeBusy answers while more bodies are being read than memory allows.
func writeBusy(w http.ResponseWriter) {
	writeHubError(w, hubError{
		status: http.StatusServiceUnavailable, kind: "busy", message: "The hub is reading too many large requests right now",
		details: "Nothing was lost. Try again in a few seconds.", retryAfter: 2,
	})
}
