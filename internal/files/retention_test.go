package files

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// later returns a second hub on the same Redis and storage whose clock is ahead.
func (s *Store) later(d time.Duration) *Store {
	next := *s
	next.now = func() time.Time { return time.Now().Add(d) }
	return &next
}

// at returns the store with its clock stopped at a minute.
func (s *Store) at(minute int) *Store {
	next := *s
	next.now = func() time.Time { return time.Unix(1_790_000_000+60*int64(minute), 0) }
	return &next
}

// blobKeys returns the keys of the blobs of files.
func (s *Store) blobKeys(t testing.TB) []string {
	t.Helper()
	return slices.DeleteFunc(s.stored(t, ""), func(key string) bool { return strings.HasPrefix(key, blockPrefix) })
}

// stored returns everything under a prefix in the storage.
func (s *Store) stored(t testing.TB, prefix string) (keys []string) {
	t.Helper()
	require.NoError(t, s.storage.List(t.Context(), prefix, func(b Blob) error {
		keys = append(keys, b.Key)
		return nil
	}))
	return keys
}

// sweepAll sweeps every part that is not empty.
func (s *Store) sweepAll(t testing.TB, pinned map[string]bool) Swept {
	t.Helper()
	parts := map[string]bool{}
	for _, key := range s.blobKeys(t) {
		parts[key[strings.IndexByte(key, '/')+1:][:2]] = true
	}
	var all Swept
	for part := range SweepParts {
		if !parts[fmt.Sprintf("%02x", part)] {
			continue
		}
		swept := must(NewRetention(s).Sweep(t.Context(), part, s.now(), 0, keep(pinned)))
		all.Files += swept.Files
		all.Bytes += swept.Bytes
	}
	return all
}

// keep returns a Pinned with these keys.
func keep(keys map[string]bool) Pinned {
	return func(context.Context) (map[string]bool, error) { return keys, nil }
}

// letGo lets the holds run out.
func (s *Store) letGo(t testing.TB, keys ...string) {
	t.Helper()
	for _, key := range keys {
		require.NoError(t, s.db.Client().Del(t.Context(), s.db.Key("files", "hold", key)).Err())
	}
}

func TestSweepTakesWhatNobodyNeeds(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		next := s.later(2 * time.Hour)
		s.mustUpload(t, input("a"), "shared")
		s.mustUpload(t, input("b"), "shared")
		s.mustUpload(t, input("c"), "old")
		must(s.Upload(t.Context(), tenant, input("c"), true, strings.NewReader("new")))
		pinned := must(s.Pin(t.Context(), tenant, []job.FileRef{input("c"), input("unknown"), input("c")}))
		require.Len(t, pinned, 1)
		require.NoError(t, s.Remove(t.Context(), tenant, []job.FileRef{input("a"), input("c")}))

		sweep := func(pinned map[string]bool) int { return next.sweepAll(t, pinned).Files }
		require.Zero(t, sweep(nil), "all are held")
		s.letGo(t, s.blobKeys(t)...)
		require.Zero(t, s.sweepAll(t, nil).Files, "all are young")

		require.Equal(t, 1, sweep(map[string]bool{pinned.Keys()[0]: true}), "the overwritten one")
		require.Equal(t, 1, sweep(nil), "the pinned one, once its job has ended")
		require.Equal(t, []string{contentKey(sum([]byte("shared")))}, s.blobKeys(t), "b still has it")
		require.Equal(t, "shared", s.mustRead(t, input("b")))
		require.NoError(t, s.Remove(t.Context(), tenant, []job.FileRef{input("b")}))
		require.Equal(t, 1, sweep(nil))
		require.Empty(t, s.blobKeys(t))
	})
}

// Between the pin and the queue, nothing tells Sweep about the job.
func TestPinIsSafeUntilTheJobIsQueued(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		s.mustUpload(t, input("a"), "a")
		s.letGo(t, s.blobKeys(t)...)
		must(s.Pin(t.Context(), tenant, []job.FileRef{input("a")}))
		require.NoError(t, s.Remove(t.Context(), tenant, []job.FileRef{input("a")}))
		require.Zero(t, s.later(2*time.Hour).sweepAll(t, nil).Files)
	})
}

// A hub that dies between the blob and the name, or in the middle of a blob,
// leaves nothing visible.
func TestDeathBeforeTheName(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		sp := must(newSpool(t.Context(), s.spool, strings.NewReader("whole"), 0))
		defer sp.Close()
		key := contentKey(sp.sha256)
		require.NoError(t, s.blobs.hold(t.Context(), key))
		require.NoError(t, s.blobs.write(t.Context(), key, sp))
		// The hub died here. Another hub died while it wrote a temporary file:
		must(s.storage.Write(t.Context(), key+".17.tmp", strings.NewReader("ha")))

		_, err := s.Resolve(t.Context(), tenant, input("a"))
		require.ErrorIs(t, err, ErrNotFound)
		s.letGo(t, key)
		require.Equal(t, Swept{Files: 2, Bytes: 7}, s.later(2*time.Hour).sweepAll(t, nil))
		s.mustUpload(t, input("a"), "whole")
		require.Equal(t, "whole", s.mustRead(t, input("a")))
	})
}

// Uploads of content that was just given up must not lose their blobs to a sweep
// that runs at the same time.
func TestSweepAgainstUploads(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		key := contentKey(sum([]byte("again and again")))
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.blobs.sweep(ctx, key); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				// One sweep directly after the other would keep the uploads waiting
				// for minutes.
				retry.Sleep(ctx, 2*time.Millisecond)
			}
		})
		for range 30 {
			got := s.mustUpload(t, input("a"), "again and again")
			s.letGo(t, key)
			require.Equal(t, "again and again", s.mustRead(t, got))
			require.NoError(t, s.Remove(t.Context(), tenant, []job.FileRef{got}))
		}
		stop()
		wg.Wait()
	})
}

// If a blob was swept because the hold ended, it is written again.
func TestNameNeverPointsToASweptBlob(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		u := must(s.newUpload(t.Context(), tenant, input("a"), false))
		entry := must(Entry{Key: contentKey(sum(nil))}.encode())
		_, _, err := u.name(t.Context(), sum(nil), entry, false)
		require.ErrorIs(t, err, errUnsafe)
		_, err = s.Resolve(t.Context(), tenant, input("a"))
		require.ErrorIs(t, err, ErrNotFound)
	})
}

func TestCheckShared(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		ctx, other := t.Context(), newStore(t, db)
		s := newStoreAt(t, db, objectStore(t))
		require.NoError(t, s.sharing().Check(ctx, "one"))
		require.NoError(t, s.sharing().Check(ctx, "one"), "again")
		require.NoError(t, s.sharing().Check(ctx, "two"))
		err := other.sharing().Check(ctx, "three")
		require.ErrorIs(t, err, ErrNotShared)
		require.Regexp(t, "(one|two)", err.Error())
		require.ErrorIs(t, other.sharing().Check(ctx, "two"), ErrNotShared, "one still uses the first storage")
		require.NoError(t, s.sharing().Leave(ctx, "one"))
		require.NoError(t, other.sharing().Check(ctx, "two"), "a hub alone may take another storage")
		require.ErrorIs(t, s.sharing().Check(ctx, "one"), ErrNotShared)
		// A hub that was killed is forgotten after a while.
		require.NoError(t, db.Client().HSet(ctx, db.Key("files", "marks"), "two", "1 another").Err())
		require.NoError(t, s.sharing().Check(ctx, "one"))
	})
}

// If Redis's clock is two months ahead of the hub's, the hub still remembers which output has which
// name, and gives files the times that Redis has.
func TestNamesAreKeptDespiteSkew(t *testing.T) {
	t.Parallel()
	const skew = 60 * 24 * time.Hour
	server := miniredis.RunT(t)
	server.SetTime(time.Now().Add(skew))
	db := redistest.Open(t, "redis://"+server.Addr())
	must(db.Now(t.Context()))
	storage := must(OpenStorage(t.Context(), t.TempDir()))
	t.Cleanup(func() { require.NoError(t, storage.Close()) })
	s := New(db, storage, Options{SpoolDir: t.TempDir()})
	source := made("gpu", "x_00001_.png", "1")
	first := must(s.AllotOutput(t.Context(), tenant, source))
	require.Equal(t, first, must(s.AllotOutput(t.Context(), tenant, source)))
	require.WithinDuration(t, time.Now().Add(skew), must(s.Resolve(t.Context(), tenant, first)).Created, time.Minute)
}
