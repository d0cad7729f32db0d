package hub

import (
	"context"
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// fault answers a request that failed for a reason that is not its own.
func (q *requests) fault(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case r.Context().Err() != nil && errors.Is(err, context.Canceled):
		return // nobody is there to read an answer
	case errors.Is(err, keyring.ErrAway):
		q.log().Warn("the keys of the hub cannot be read", "error", err)
		writeNoKeys(w)
	case errors.Is(err, redis.ErrAway):
		q.away()
		q.log().Warn("Redis is away", "error", err)
		writeAway(w)
	default:
		q.log().Error("request failed", "route", q.route(r), "error", err)
		writeTrouble(w, r)
	}
}
