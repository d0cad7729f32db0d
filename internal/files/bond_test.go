package files

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// The table of Bond.
func TestMeetings(t *testing.T) {
	t.Parallel()
	a, b := tied{id: "a", beat: 5}, tied{id: "b", beat: 5}
	for name, c := range map[string]struct {
		meeting
		want outcome
	}{
		"first meeting":                          {meeting{}, join},
		"an upgrade":                             {meeting{blobs: 100, named: 80}, join},
		"an upgrade with an empty Redis":         {meeting{blobs: 100}, strangers},
		"an upgrade of two fleets on a bucket":   {meeting{blobs: 100, named: 20}, strangers},
		"an empty Redis":                         {meeting{stored: a, blobs: 100}, strangers},
		"an empty Redis, a new storage":          {meeting{stored: a, blobs: 100, young: true}, strangers},
		"an empty Redis and an empty storage":    {meeting{stored: a}, join},
		"an old dump from before the upgrade":    {meeting{stored: a, blobs: 100, named: 90}, strangers},
		"a failover just after the upgrade":      {meeting{stored: a, blobs: 100, named: 90, young: true}, recall},
		"a new storage":                          {meeting{redis: a}, join},
		"a hub that was killed while they met":   {meeting{redis: a, blobs: 100, named: 90}, join},
		"another storage, of an old version":     {meeting{redis: a, blobs: 100}, strangers},
		"the same":                               {meeting{redis: a, stored: a}, together},
		"a failover that has lost the last beat": {meeting{redis: tied{"a", 4}, stored: a}, together},
		"an old dump":                            {meeting{redis: tied{"a", 3}, stored: a}, strangers},
		"an old copy of the storage":             {meeting{redis: tied{"a", 50}, stored: a}, together},
		"another Redis, nothing to lose":         {meeting{redis: b, stored: a}, join},
		"another Redis":                          {meeting{redis: b, stored: a, blobs: 1}, strangers},
		"another Redis with the same uploads":    {meeting{redis: b, stored: a, blobs: 9, named: 9, young: true}, strangers},
	} {
		got, reason := c.judge()
		require.Equal(t, c.want, got, name)
		require.Equal(t, got == strangers, reason != "", name)
	}
}

// onAnother returns the same storage with another Redis.
func (s *Store) onAnother(t *testing.T, db *redis.DB) *Store {
	t.Helper()
	return New(db, s.storage, Options{SpoolDir: t.TempDir()})
}

func (s *Store) bond() *Bond { return NewBond(s.db, s.storage) }

// Another Redis is noticed, even by a hub that has just started, and can be adopted on purpose.
func TestAnotherRedis(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		require.NoError(t, s.bond().Meet(t.Context()))
		s.mustUpload(t, input("a"), "picture")
		require.NoError(t, s.bond().Meet(t.Context()))
		require.NoError(t, s.bond().Beat(t.Context()))
		require.NoError(t, s.bond().Meet(t.Context()))

		other := s.onAnother(t, redistest.Embedded(t))
		hubs := []*Bond{other.bond(), other.bond()}
		for _, hub := range hubs {
			for range 2 {
				require.ErrorIs(t, hub.Meet(t.Context()), ErrStrangers)
				require.ErrorIs(t, hub.Err(), ErrStrangers)
			}
		}
		require.NoError(t, s.bond().Meet(t.Context()), "the right one may come back")

		require.NoError(t, hubs[0].Adopt(t.Context()))
		for _, hub := range hubs {
			require.NoError(t, hub.Meet(t.Context()))
			require.NoError(t, hub.Err())
			require.NoError(t, hub.Beat(t.Context()))
			require.NoError(t, hub.Meet(t.Context()))
		}
		before := s.bond()
		require.NoError(t, before.Beat(t.Context()), "it counts no more")
		require.NoError(t, hubs[0].Meet(t.Context()))
		require.ErrorIs(t, before.Meet(t.Context()), ErrStrangers, "it has lost the storage")
	})
}

// A Redis that was emptied or reset to an older state is noticed, but not one that has only lost
// its last moment.
func TestAnOlderRedis(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		s.mustUpload(t, input("a"), "picture")
		bond, key := s.bond(), s.db.Key("files", "bond")
		require.NoError(t, bond.Meet(t.Context()))
		require.NoError(t, s.db.Client().Del(t.Context(), key).Err())
		require.NoError(t, bond.Meet(t.Context()), "the id was lost just after it was made")
		for range 5 {
			require.NoError(t, bond.Beat(t.Context()))
		}
		require.NoError(t, s.db.Client().HSet(t.Context(), key, "beat", "4").Err())
		require.NoError(t, bond.Meet(t.Context()))
		require.NoError(t, s.db.Client().HSet(t.Context(), key, "beat", "3").Err())
		require.ErrorIs(t, bond.Meet(t.Context()), ErrStrangers)
		require.NoError(t, bond.Adopt(t.Context()))
		require.NoError(t, bond.Meet(t.Context()))

		require.NoError(t, s.Remove(t.Context(), tenant, []job.FileRef{input("a")}))
		require.NoError(t, s.db.Client().Del(t.Context(), key).Err())
		require.ErrorIs(t, bond.Meet(t.Context()), ErrStrangers, "it knows no file")
	})
}

// A storage of a version before the bond goes on with the Redis that knows it.
func TestBondOfAnOldInstallation(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		for n := range 20 {
			s.mustUpload(t, input(fmt.Sprint(n)), fmt.Sprint("picture ", n))
		}
		for n := range 5 { // what killed hubs have left behind
			must(s.storage.Write(t.Context(), outputKey(fmt.Sprintf("0%d-left", n)), bytes.NewReader([]byte("x"))))
		}
		other := s.onAnother(t, redistest.Embedded(t))
		require.ErrorIs(t, other.bond().Meet(t.Context()), ErrStrangers)
		require.NoError(t, s.bond().Meet(t.Context()))
		require.ErrorIs(t, other.bond().Meet(t.Context()), ErrStrangers)
	})
}

// Hubs that start together agree.
func TestHubsMeetTogether(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		var hubs sync.WaitGroup
		for range 8 {
			hubs.Go(func() {
				bond := s.bond()
				if bond.Meet(t.Context()) != nil || bond.Beat(t.Context()) != nil {
					t.Error("strangers")
				}
			})
		}
		hubs.Wait()
		id := must(s.storage.text(t.Context(), bondKey, maxBond))
		require.Len(t, id, 36)
		require.NoError(t, s.bond().Meet(t.Context()))
		require.True(t, strings.HasPrefix(must(s.storage.text(t.Context(), beatKey, maxBond)), id+" "))
	})
}
