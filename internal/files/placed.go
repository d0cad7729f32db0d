package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Placed is what the hubs have put on instances, or looked at there. It is only a cache: what it has
// forgotten is looked at again.
type Placed struct{ db *redis.DB }

// NewPlaced returns what the hubs on a Redis know.
func NewPlaced(db *redis.DB) Placed { return Placed{db} }

// known is what is in one place on an instance.
type known struct {
	ETag   string `json:"etag"`
	Size   int64  `json:"size"`
	Boot   string `json:"boot"`
	SHA256 string `json:"sha256"`
}

// maxKnown bounds what is remembered about one instance.
const maxKnown = 20_000

// recall returns what is known to be in a place on an instance.
func (l Placed) recall(ctx context.Context, instance string, p place) (known, bool, error) {
	raw, err := l.db.Client().HGet(ctx, keys(l).at(instance), placeField(p)).Result()
	if errors.Is(err, redis.Nil) {
		return known{}, false, nil
	}
	if err != nil {
		return known{}, false, fmt.Errorf("files: recall: %w", err)
	}
	var k known
	if err := json.Unmarshal([]byte(raw), &k); err != nil {
		// It is only a cache; the file can be looked at again.
		return known{}, false, nil
	}
	return k, true, nil
}

// Remembers reports whether a hub has recently put a file into a place on an instance, or looked at
// what is there.
func (l Placed) Remembers(ctx context.Context, instance string, ref job.FileRef) (bool, error) {
	p, ok := placeOf(ref)
	if !ok {
		return false, nil
	}
	_, found, err := l.recall(ctx, instance, p)
	return found, err
}

// note remembers what is in a place on an instance.
func (l Placed) note(ctx context.Context, instance string, p place, k known) error {
	raw, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return l.noteField(ctx, instance, placeField(p), string(raw))
}

func (l Placed) noteField(ctx context.Context, instance, field, value string) error {
	_, err := l.db.Run(ctx, noteScript, redis.Pack(instance), field, value,
		rememberSources.Milliseconds(), maxKnown)
	if err != nil {
		return fmt.Errorf("files: note: %w", err)
	}
	return nil
}

func placeField(p place) string { return redis.Pack(p.typ, p.dir, p.name) }

// noteContent remembers which place on an instance a content was sent to.
func (l Placed) noteContent(ctx context.Context, instance, content string, p place) error {
	return l.noteField(ctx, instance, contentField(content), placeField(p))
}

// recallContent returns the place that a content was sent to.
func (l Placed) recallContent(ctx context.Context, instance, content string) (place, bool, error) {
	packed, err := l.db.Client().HGet(ctx, keys(l).at(instance), contentField(content)).Result()
	if errors.Is(err, redis.Nil) {
		return place{}, false, nil
	}
	if err != nil {
		return place{}, false, fmt.Errorf("files: recall: %w", err)
	}
	parts, ok := redis.Unpack(packed)
	if !ok || len(parts) != 3 {
		return place{}, false, nil
	}
	return place{typ: parts[0], dir: parts[1], name: parts[2]}, true, nil
}

// contentField differs from every placeField, which begins with a digit.
func contentField(content string) string { return "=" + content }
