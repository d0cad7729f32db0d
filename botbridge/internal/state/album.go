package state

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

var partScript = script("part", redis.Durable)

const (
	// partKeep is how long the pictures of an album are remembered after the last one.
	partKeep = 10 * time.Minute
	// maxParts bounds the pictures that are remembered of a lane. It is more than can wait
	// in a lane, so that only those of handled messages are dropped.
	maxParts = 100
	// maxPart bounds what is remembered of one, in bytes.
	maxPart = 4096
)

// NotePart remembers a picture of an album, for ten minutes. Any process may call it. One
// whose description is too long is left out.
func (s *Inbox) NotePart(ctx context.Context, lane, album, message string, part any) error {
	doc, err := json.Marshal(part)
	if err != nil || len(doc)+len(album)+len(message) > maxPart {
		return err
	}
	_, err = s.run(ctx, partScript, lane, album+"/"+message, doc, partKeep.Milliseconds(), maxParts)
	return err
}

// Parts returns the pictures of an album that have come, as JSON by message.
func (s *Inbox) Parts(ctx context.Context, lane, album string) (map[string]json.RawMessage, error) {
	all, err := s.db.Client().HGetAll(ctx, s.db.Key("album", lane)).Result()
	if err != nil {
		return nil, fmt.Errorf("reading an album: %w", err)
	}
	parts := map[string]json.RawMessage{}
	for field, doc := range all {
		if message, ok := strings.CutPrefix(field, album+"/"); ok {
			parts[message] = json.RawMessage(doc)
		}
	}
	return parts, nil
}
