package hub

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// A checkup names what differs between servers, and which server is gone.
func TestCheckup(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		models := func(names ...string) map[string][]string { return map[string][]string{"checkpoints": names} }
		b := newBench(t, 0, func(b *bench) {
			b.instances = []*instance{
				newInstance(t, sim.Config{Models: models("a.safetensors", "b.safetensors")}),
				newInstance(t, sim.Config{Models: models("a.safetensors"), OmitClasses: []string{"ImageScale"}}),
				newInstance(t, sim.Config{Models: models("a.safetensors"), Version: "0.33.0"}),
			}
		})
		find := func(about, says string) *Finding {
			all := b.hub.Checkup().Findings(t.Context())
			i := slices.IndexFunc(all, func(f Finding) bool { return f.About == about && strings.Contains(f.Says, says) })
			if i < 0 {
				return nil
			}
			return &all[i]
		}
		eventually(t, func() bool {
			return find("models", "b.safetensors is on 1 of 3 servers") != nil && find("versions", "0.33.0 on") != nil && find("nodes", "ImageScale") != nil
		}, time.Minute, 20*time.Millisecond, "what differs is found")
		require.Equal(t, LevelOK, find("storage", "").Level)
		require.Equal(t, LevelOK, find("redis", "").Level)

		b.instances[0].die()
		eventually(t, func() bool {
			f := find("instances", "is offline")
			return f != nil && f.Level == LevelWarning && f.Do != ""
		}, time.Minute, 20*time.Millisecond, "the server that is gone is named")
	})
}

// A server whose disk is full gets no jobs, which nobody has asked for.
func TestCheckupOfAFullDisk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := fleet.Instance{Name: "gpu", Agent: "box", State: fleet.Draining, Reason: "its disk is full", Report: fleet.InstanceReport{DiskFull: true}}
		require.Contains(t, adviceFor(f), "--output-dir")
		f.State = fleet.Offline
		require.NotContains(t, adviceFor(f), "--output-dir")
	})
}

// What the same servers lack is one finding, with few names; the number of findings is bounded.
func TestFindingsAreFew(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var all []catalog.Difference
		for n := range 1000 {
			name := strings.Repeat("m", n+1)
			all = append(all, catalog.Difference{Kind: catalog.DifferentFile, Name: name, Of: "Loader.file", Have: []string{"a"}, Lack: []string{"b", "c"}})
		}
		list := findingsOf(all, 3)
		require.Len(t, list, 1)
		require.Contains(t, list[0].Says, "and 995 more are on 1 of 3 servers, not on b, c")
		for n := range all {
			all[n].Lack = []string{all[n].Name}
		}
		list = findingsOf(all, 3)
		require.Len(t, list, maxFindings+1)
		require.Contains(t, list[maxFindings].Says, "and 950 more differences")
	})
}
