package stats

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
)

func list(t *testing.T, f *Faults) []Fault { return must(f.List(t.Context())) }

// Faults of all hubs are in one list, the newest first, as they were noted.
func TestFaultsOfAllHubs(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		one, two := NewFaults(db), NewFaults(db)
		noted := Fault{Kind: Lost, Tenant: "studio b/ü %\n", Job: "job \x00", Instance: "gpu 1", Reason: `"quoted" text`}
		one.Note(noted)
		one.Note(noted) // the same again
		require.Empty(t, list(t, one))
		require.NoError(t, one.Flush(t.Context()))
		two.Note(Fault{Kind: Sick, Instance: "gpu 1", Reason: "it hangs"})
		require.NoError(t, two.Flush(t.Context()))
		require.NoError(t, two.Flush(t.Context()))
		all := list(t, one)
		require.Len(t, all, 2)
		require.Equal(t, Sick, all[0].Kind)
		require.Positive(t, all[1].At)
		all[1].At = 0
		require.Equal(t, noted, all[1])
		require.Equal(t, Lost, one.Last("gpu 1").Kind)
		require.Equal(t, Sick, two.Last("gpu 1").Kind)
		require.Zero(t, one.Last("gpu 2"))
	})
}

// However many faults one tenant makes, those of others stay, and their number is bounded.
func TestFaultsAreBounded(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		f := NewFaults(db)
		f.Note(Fault{Kind: Refused, Tenant: "ada", Reason: "hers"})
		for round := range 3 {
			for n := range 3 * mostFaults {
				f.Note(Fault{Kind: Refused, Tenant: "eve", Reason: fmt.Sprint(round, n)})
			}
			require.LessOrEqual(t, len(f.waiting), mostFaults)
			require.NoError(t, f.Flush(t.Context()))
		}
		of := map[string]int{}
		for _, fault := range list(t, f) {
			of[fault.Tenant]++
		}
		require.Equal(t, map[string]int{"ada": 1, "eve": mostOfTenant}, of)
		for n := range mostFaults {
			f.Note(Fault{Kind: Refused, Tenant: fmt.Sprint("tenant", n), Reason: "x"})
		}
		require.NoError(t, f.Flush(t.Context()))
		require.Len(t, list(t, f), mostFaults)
	})
}

func TestLongReasonsAreCut(t *testing.T) {
	t.Parallel()
	f := NewFaults(nil)
	f.Note(Fault{Reason: strings.Repeat("ü", maxText), Job: "\xff"})
	require.LessOrEqual(t, len(f.waiting[0].Reason), maxText+4)
	require.True(t, utf8.ValidString(f.waiting[0].Reason))
	require.True(t, utf8.ValidString(f.waiting[0].Job))
}

func FuzzDecodeFault(f *testing.F) {
	for _, seed := range []string{`1700000000000 ada {"kind":"lost","reason":"x"}`, `1  {}`, `x y {}`, `1 %zz {}`, ``} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		fault, err := decodeFault(value)
		if err != nil {
			require.ErrorIs(t, err, errStored)
			require.Zero(t, fault)
		}
	})
}

// A fault is as old as it is, whatever Redis's clock shows.
func TestFaultsAreAsOldAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			server := miniredis.RunT(t)
			server.SetTime(time.Now().Add(skew))
			db := redistest.Open(t, "redis://"+server.Addr())
			must(db.Now(t.Context()))
			f := NewFaults(db)
			f.Note(Fault{Kind: Sick, Instance: "gpu", Reason: "it hangs"})
			require.NoError(t, f.Flush(t.Context()))
			all := list(t, f)
			require.Len(t, all, 1)
			require.WithinDuration(t, time.Now(), time.UnixMilli(all[0].At), time.Minute)
			require.WithinDuration(t, time.Now(), time.UnixMilli(f.Last("gpu").At), time.Minute)
		})
	}
}

func TestMain(m *testing.M) { leaktest.Main(m) }

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
