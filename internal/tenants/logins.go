package tenants

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// loginsFor is how long after a login a hub counts as having users who log in.
const loginsFor = 7 * 24 * time.Hour

// Logins remember whether anybody has logged in recently, at this hub or at another one on its
// Redis: a hub that is restarted must not take itself for one without logins until the first user
// is back.
type Logins struct {
	seen   atomic.Int64 // Unix seconds of the last one here
	shared atomic.Bool  // one was seen anywhere
}

// Note records a request by a user who has logged in.
func (l *Logins) Note() { l.seen.Store(time.Now().Unix()) }

// Lately reports whether anybody has logged in within loginsFor.
func (l *Logins) Lately() bool {
	return l.shared.Load() || time.Since(time.Unix(l.seen.Load(), 0)) < loginsFor
}

// freshLogin is how long a login counts as news for other hubs, which share them each minute.
const freshLogin = 2 * time.Minute

var loginsScript = redis.NewScript("hub/logins", redis.Write, `
-- Shares among hubs that somebody has logged in.
--
-- ARGV[1] '1' when one has seen a login in the last minutes
-- ARGV[2] how long that counts, in milliseconds
--
-- Output: {'yes'} when a login counts now, {'no'}
local mark = key('hub', 'logins')
if ARGV[1] == '1' then
  write('SET', mark, '1')
  expire(mark, now() + ARGV[2])
end
return {redis.call('EXISTS', mark) == 1 and 'yes' or 'no'}
`)

// Share exchanges what is known with the other hubs.
func (l *Logins) Share(ctx context.Context, db *redis.DB) error {
	fresh := "0"
	if time.Since(time.Unix(l.seen.Load(), 0)) < freshLogin {
		fresh = "1"
	}
	reply, err := db.Run(ctx, loginsScript, fresh, loginsFor.Milliseconds())
	if err != nil {
		return err
	}
	l.shared.Store(reply[0] == "yes")
	return nil
}
