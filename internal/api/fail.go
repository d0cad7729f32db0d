package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/refusal"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Fail answers a request that the core has refused, or that failed for a reason that is not its
// own: Redis or the keys cannot be reached, or something is wrong with the hub.
func (q *Requests) Fail(w http.ResponseWriter, r *http.Request, err error) {
	var refused *refusal.Refusal
	switch {
	case errors.As(err, &refused):
		q.refuse(w, refused)
	case r.Context().Err() != nil && errors.Is(err, context.Canceled):
		return // nobody is there to read an answer
	case errors.Is(err, budget.ErrFull):
		w.Header().Set("Connection", "close")
		writeBusy(w)
	case errors.Is(err, catalog.ErrUnknown):
		WriteError(w, Error{
			Status: http.StatusServiceUnavailable, Kind: "starting", Message: "The hub is starting",
			Details: "It does not know yet what its ComfyUI instances can run. Try again in a moment.", RetryAfter: 2,
		})
	case errors.Is(err, keyring.ErrUnavailable):
		q.Log().Warn("the keys of the hub cannot be read", "error", err)
		writeNoKeys(w)
	case errors.Is(err, redis.ErrUnavailable):
		q.Unavailable()
		q.Log().Warn("Redis is away", "error", err)
		writeUnavailable(w)
	default:
		q.Log().Error("request failed", "route", q.Route(r), "error", err)
		WriteInternalError(w, r)
	}
}

// refuse answers a request that the core has refused.
func (q *Requests) refuse(w http.ResponseWriter, r *refusal.Refusal) {
	if r.Log != "" {
		q.Log().Error(r.Log, "error", r.Cause)
	}
	e := Error{Status: r.Status, Kind: r.Kind, Message: r.Message, Details: r.Details, RetryAfter: r.RetryAfter}
	if r.Limit != "" {
		q.RefuseFull(w, r.Limit, e)
		return
	}
	WriteError(w, e)
}

// RefuseFull answers a tenant that has reached one of its limits. The limit is
// named as in the Caddyfile, so that the user can tell the operator which.
func (q *Requests) RefuseFull(w http.ResponseWriter, limit string, e Error) {
	q.Limited(limit)
	e.Details = "This is your own limit (tenant_limits " + limit + "); other users are not affected. " + e.Details
	WriteError(w, e)
}

// Hold counts a request that is held open as a socket of its owner. It must end when ctx does, and
// release must be called then. Any error is answered.
func (q *Requests) Hold(w http.ResponseWriter, r *http.Request, a Requester) (ctx context.Context, release func(), ok bool) {
	ctx, release, err := q.Slot(r.Context(), stream.Ident{Requester: a.Requester(), Network: a.Network})
	switch {
	case err == nil:
		return ctx, release, true
	case errors.Is(err, stream.ErrTenantFull):
		q.RefuseFull(w, "sockets", Error{
			Status: http.StatusTooManyRequests, Kind: "tenant_sockets_full", Message: "You are waiting for too many jobs at once", RetryAfter: 5,
		})
	case errors.Is(err, stream.ErrFull):
		WriteError(w, Error{
			Status: http.StatusServiceUnavailable, Kind: "too_many_sockets", Message: "Too many clients are waiting at the hub", RetryAfter: 5,
		})
	default:
		WriteError(w, Error{
			Status: http.StatusServiceUnavailable, Kind: "shutting_down", Message: "The hub is shutting down", RetryAfter: 2,
		})
	}
	return nil, nil, false
}
