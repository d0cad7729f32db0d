package redis

import (
	"context"
)

// incarnationScript runs where the keys are, which only the server of a script is
// certain to be in a Cluster.
var incarnationScript = NewScript("redis/incarnation", ReadOnly, `
local info = redis.pcall('INFO', 'server')
if type(info) ~= 'string' then
  return {''}
end
return {string.match(info, 'run_id:(%x+)') or ''}
`)

// Incarnation identifies the process that holds the keys: it changes when Redis is
// restarted and when a replica takes over, both of which may lose the last writes.
// It is empty for the embedded server, which dies with this process, and for a server
// that does not let its users call INFO.
func (db *DB) Incarnation(ctx context.Context) (string, error) {
	if db.embedded != nil {
		return "", nil
	}
	reply, err := db.Run(ctx, incarnationScript)
	if err != nil || len(reply) == 0 {
		return "", err
	}
	return reply[0], nil
}
