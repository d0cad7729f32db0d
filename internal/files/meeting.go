package files

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

const (
	// bondSample is how many blobs are looked at to tell whether Redis knows a storage.
	bondSample = 1000
	// youngBond is how old an id may be for a failover just after the first meeting to have lost
	// it.
	youngBond = 10 * time.Minute
)

// meeting is what is known when a Redis and a storage meet.
type meeting struct {
	redis, stored tied
	// blobs is how many blobs were found in the storage, up to bondSample, and named how many of
	// them have a name in Redis. Both are known only if the ids differ.
	blobs, named int
	// young says that the storage got its id a moment ago.
	young bool
}

// outcome is how a meeting ends.
type outcome string

const (
	together  outcome = "together"
	join      outcome = "join"   // both get the id of Redis, a new one if it has none
	recall    outcome = "recall" // Redis gets the id of the storage
	strangers outcome = "strangers"
)

// judge decides by Bond's table. reason goes with strangers.
func (m meeting) judge() (what outcome, reason string) {
	switch {
	case m.redis.id != "" && m.redis.id == m.stored.id:
		if m.stored.beat > m.redis.beat+1 {
			return strangers, "Redis is in a state of some hours before, and does not know the files since"
		}
		return together, ""
	case m.blobs == 0:
		return join, ""
	case m.stored.id == "" && m.known():
		return join, ""
	case m.stored.id == "" && m.redis.id == "":
		return strangers, "the storage has files, and this Redis does not know them"
	case m.stored.id == "":
		return strangers, "the storage has files of others"
	case m.redis.id == "" && m.known() && m.young:
		return recall, ""
	case m.redis.id == "":
		return strangers, "the storage belongs to another Redis, or this one has lost everything"
	}
	return strangers, "the storage belongs to another Redis, and this Redis to another storage"
}

// known reports whether most of the storage's blobs have a name in Redis. Some have none: those
// that jobs still need, or that a killed hub left behind.
func (m meeting) known() bool { return 2*m.named >= m.blobs }

// look finds out what Meet needs to know. It reads the storage first, because that gets an id after
// Redis.
func (b *Bond) look(ctx context.Context) (m meeting, err error) {
	if m.stored, err = b.stored(ctx); err != nil {
		return m, err
	}
	values, err := b.db.Client().HMGet(ctx, b.db.Key("files", "bond"), "id", "beat").Result()
	if err != nil {
		return m, fmt.Errorf("files: bond: %w", err)
	}
	m.redis.id, _ = values[0].(string)
	beat, _ := values[1].(string)
	m.redis.beat, _ = strconv.ParseInt(beat, 10, 64)
	if m.redis.id != "" && m.redis.id == m.stored.id {
		return m, nil
	}
	if m.blobs, m.named, err = b.sample(ctx); err != nil || m.stored.id == "" || m.redis.id != "" || !m.known() {
		return m, err // it does not matter how young the id is
	}
	now, since, err := b.Age(ctx)
	m.young = err == nil && now.Sub(since) < youngBond
	return m, err
}

// sample counts some blobs of the storage, and how many of them have names in Redis.
func (b *Bond) sample(ctx context.Context) (blobs, named int, err error) {
	enough := errors.New("enough")
	var keys []string
	for _, prefix := range [...]string{contentPrefix, outputPrefix} {
		most := len(keys) + bondSample/2
		err := b.storage.List(ctx, prefix, func(blob Blob) error {
			if keys = append(keys, blob.Key); len(keys) >= most {
				return enough
			}
			return nil
		})
		if err != nil && !errors.Is(err, enough) {
			return 0, 0, err
		}
	}
	if len(keys) == 0 {
		return 0, 0, nil
	}
	names, err := b.db.Client().HMGet(ctx, b.db.Key("files", "refs"), keys...).Result()
	if err != nil {
		return 0, 0, fmt.Errorf("files: bond: %w", err)
	}
	for _, name := range names {
		if name != nil {
			named++
		}
	}
	return len(keys), named, nil
}
