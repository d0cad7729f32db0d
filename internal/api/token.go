package api

import (
	"net/http"
	"strconv"
)

// NoteWrongToken counts a token of a machine that is not valid, writes it to the audit log
// up to the limit, and returns the status to answer with: 401, or 429 once too many wrong
// keys and tokens have come from the caller's address. Routes that let callers in by
// themselves call it for whatever they refuse.
func (q *Requests) NoteWrongToken(w http.ResponseWriter, a Requester) (status int) {
	if wait := q.Attempts.Failed(a.ip); wait > 0 {
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", strconv.Itoa(wait))
		return http.StatusTooManyRequests
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	q.Audit("wrong token", "address", a.ip, "status", http.StatusUnauthorized)
	return http.StatusUnauthorized
}
