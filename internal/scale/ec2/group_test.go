package ec2

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	firstID, secondID, thirdID = "i-00000000000000001", "i-00000000000000002", "i-00000000000000003"
	one, two, three            = "a10g-" + firstID, "a10g-" + secondID, "a10g-" + thirdID
)

func started(t *testing.T) (*group, Group) {
	g := newGroup(t)
	p := g.provider()
	require.NoError(t, p.Set(t.Context(), scale.Change{Wanted: 3, Start: 3}))
	require.Equal(t, []string{firstID, secondID, thirdID}, g.ids())
	g.up()
	return g, p
}

// The machines go that are named, once, also if a hub died and another says it again. Those that stay
// are protected.
func TestNamedMachinesGo(t *testing.T) {
	g, p := started(t)
	change := scale.Change{Wanted: 2, Remove: []string{two}, Keep: []string{one, three}}
	for range 2 {
		require.NoError(t, p.Set(t.Context(), change))
		require.Equal(t, []string{firstID, thirdID}, g.ids())
		require.Equal(t, 2, g.desired)
	}
	require.True(t, g.machine(firstID).ProtectedFromScaleIn)
	require.True(t, g.machine(thirdID).ProtectedFromScaleIn)
	require.NoError(t, p.Set(t.Context(), scale.Change{Remove: []string{one, three}}))
	require.Empty(t, g.ids())
}

// One that has not joined in time goes, and none that has, even if new ones are protected.
func TestMachineThatDoesNotJoin(t *testing.T) {
	g, p := started(t)
	for _, m := range g.machines {
		m.ProtectedFromScaleIn = true
	}
	require.NoError(t, p.Set(t.Context(), scale.Change{Wanted: 2, Keep: []string{one, three}}))
	require.Equal(t, []string{firstID, thirdID}, g.ids())
}

// A change that failed halfway is told again with another id, and ends nothing twice.
func TestChangeThatFails(t *testing.T) {
	g, p := started(t)
	g.fail["SetDesiredCapacity"] = [2]string{"ScalingActivityInProgress", "a scaling activity is in progress"}
	change := scale.Change{Wanted: 3, Start: 1, Remove: []string{two}, Keep: []string{one, three}}
	require.EqualError(t, p.Set(t.Context(), change), "AWS: ScalingActivityInProgress: a scaling activity is in progress")
	require.Equal(t, 2, g.desired)
	clear(g.fail)
	require.NoError(t, p.Set(t.Context(), change))
	require.Equal(t, 3, g.desired)
	require.Len(t, g.ids(), 3)
	require.Equal(t, 1, count(g.calls, "TerminateInstanceInAutoScalingGroup"))
}

func count(list []string, what string) (n int) {
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

// Operators read why it does not work.
func TestWhatFails(t *testing.T) {
	g, p := started(t)
	g.max = 3
	require.EqualError(t, p.Set(t.Context(), scale.Change{Wanted: 5, Start: 2, Keep: []string{one, two, three}}), "the group may have 3 machines at most, and 5 are wanted")
	require.ErrorContains(t, p.Set(t.Context(), scale.Change{Wanted: 2, Remove: []string{"a10g-7"}}), "the name of the instance a10g-7 does not end with the id of its machine")
	g.min = 3
	require.ErrorContains(t, p.Set(t.Context(), scale.Change{Wanted: 2, Remove: []string{one}}), "AWS: ValidationError: Currently, desiredSize equals minSize")
	p.Name = "other"
	require.ErrorContains(t, p.Set(t.Context(), scale.Change{}), "there is no Auto Scaling group other")
	require.False(t, slices.Contains(g.calls, "InvalidAction"))
}

func TestIDs(t *testing.T) {
	for name, id := range map[string]string{
		one: firstID, "i-0abcdef0": "i-0abcdef0", "a10g.i-0abcdef0": "i-0abcdef0",
		"a10g-7": "", "hi-0abcdef0": "", "a10g-i-0abcdef": "", one + "/0": "", "": "",
	} {
		require.Equal(t, id, idOf(name), name)
	}
}
