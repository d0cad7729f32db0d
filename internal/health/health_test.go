package health

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// A server whose disk is full gets no jobs, which nobody has asked for.
func TestCheckupOfAFullDisk(t *testing.T) {
	t.Parallel()
	f := fleet.Instance{Name: "gpu", Agent: "box", State: fleet.Draining, Reason: "its disk is full", Report: fleet.InstanceReport{DiskFull: true}}
	require.Contains(t, adviceFor(f), "--output-dir")
	f.State = fleet.Offline
	require.NotContains(t, adviceFor(f), "--output-dir")
}

// What the same servers lack is one finding, with few names; the number of findings is bounded.
func TestFindingsAreFew(t *testing.T) {
	t.Parallel()
	var all []catalog.Difference
	for n := range 1000 {
		name := strings.Repeat("m", n+1)
		all = append(all, catalog.Difference{Kind: catalog.DifferentFile, Name: name, Of: "Loader.file", Have: []string{"a"}, Lack: []string{"b", "c"}})
	}
	list := findingsOf(all, 3)
	require.Len(t, list, 1)
	require.Contains(t, list[0].Says, "and 995 more are on 1 of 3 instances, not on b, c")
	for n := range all {
		all[n].Lack = []string{all[n].Name}
	}
	list = findingsOf(all, 3)
	require.Len(t, list, maxFindings+1)
	require.Contains(t, list[maxFindings].Says, "and 950 more differences")
}

// However many ask whether the hub is ready, Redis is asked only once a second.
func TestReadyIsAskedByMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var answer error
		r := Readiness{Ask: func(ctx context.Context) error {
			asked.Add(1)
			select {
			case <-time.After(100 * time.Millisecond):
				return answer
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		everybody := func() (failed int64) {
			var n atomic.Int64
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					if r.Check(t.Context()) != nil {
						n.Add(1)
					}
				})
			}
			all.Wait()
			return n.Load()
		}
		require.Zero(t, everybody())
		require.Zero(t, everybody())
		require.EqualValues(t, 1, asked.Load())
		time.Sleep(2 * readyFor)
		answer = errors.New("MISCONF")
		require.EqualValues(t, 50, everybody())
		require.ErrorContains(t, r.Check(t.Context()), "MISCONF")
		require.EqualValues(t, 2, asked.Load())

		// A caller that asks on behalf of all and leaves does not spoil the answer of the others.
		time.Sleep(2 * readyFor)
		answer = nil
		leaving, leave := context.WithCancel(t.Context())
		leave()
		require.NoError(t, r.Check(leaving))
		require.NoError(t, r.Check(t.Context()))
		require.EqualValues(t, 3, asked.Load())
	})
}
