package scale

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// leadFor is how long a hub scales without saying that it still does: longer than any call of a
// provider.
const leadFor = 90 * time.Second

//go:embed scripts/lead.lua
var leadLua string

//go:embed scripts/keep.lua
var keepLua string

// Keeping is durable: after a crash nobody may forget what a provider was told.
var (
	leadScript = redis.NewScript("scale/lead", redis.Write, leadLua)
	keepScript = redis.NewScript("scale/keep", redis.Durable, keepLua)
)

// errTaken means that another hub scales now.
var errTaken = errors.New("scale: another hub does it")

// store is what Redis has of this package.
type store struct {
	db  *redis.DB
	hub string
}

// lead returns what is known about all classes, and Redis's time in milliseconds. The error is
// errTaken, or one of Redis.
func (s store) lead(ctx context.Context) (now int64, records map[string]string, err error) {
	reply, err := s.db.Run(ctx, leadScript, s.hub, leadFor.Milliseconds())
	switch {
	case err != nil:
		return 0, nil, err
	case len(reply) < 2:
		return 0, nil, errTaken
	}
	if now, err = strconv.ParseInt(reply[1], 10, 64); err != nil {
		return 0, nil, fmt.Errorf("scale: %w", err)
	}
	records = map[string]string{}
	for n := 2; n+1 < len(reply); n += 2 {
		records[reply[n]] = reply[n+1]
	}
	return now, records, nil
}

// keep stores what is known about a class; an empty text removes it. The error is errTaken, or one
// of Redis.
func (s store) keep(ctx context.Context, class, text string) error {
	reply, err := s.db.Run(ctx, keepScript, s.hub, class, text)
	if err == nil && reply[0] != "ok" {
		err = errTaken
	}
	return err
}

// read returns what is known about all classes.
func (s store) read(ctx context.Context) (map[string]string, error) {
	return s.db.Client().HGetAll(ctx, s.db.Key("scale", "classes")).Result()
}
