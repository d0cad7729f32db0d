package stats

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

func list(t *testing.T, f *Faults) []Fault {
	t.Helper()
	all, err := f.List(t.Context())
	require.NoError(t, err)
	return all
}

// Faults of all hubs are in one list, the newest first, as they were noted.
func TestFaultsOfAllHubs(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
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
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
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
