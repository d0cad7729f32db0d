package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// report returns a report of one idle instance per name, served at host.
func report(agent, host string, boot int64, seq uint64, names ...string) Report {
	r := Report{Agent: agent, Boot: boot, Seq: seq}
	for _, n := range names {
		r.Instances = append(r.Instances, InstanceReport{Name: n, URL: "https://" + host + "/i/" + n, Up: true, Boot: 1})
	}
	return r
}

func state(t *testing.T, r *Registry, name string) State {
	i, ok := r.Instance(name)
	require.True(t, ok, "%s is not known", name)
	return i.State
}

func TestReportsInAnyOrder(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	busy := report("a", "h:1", 5, 3, "a")
	busy.Instances[0].Queue = 1
	require.NoError(t, r.Apply(busy))
	require.Equal(t, Busy, state(t, r, "a"))
	require.ErrorIs(t, r.Apply(report("a", "h:1", 5, 2, "a")), ErrStale)
	require.ErrorIs(t, r.Apply(report("a", "h:1", 5, 3, "a")), ErrStale, "a repetition is no news")
	require.ErrorIs(t, r.Apply(report("a", "h:1", 4, 99, "a")), ErrStale, "an earlier boot")
	require.Equal(t, Busy, state(t, r, "a"), "older reports change nothing")
	require.NoError(t, r.Apply(report("a", "h:1", 5, 4, "a")))
	require.Equal(t, Idle, state(t, r, "a"))
	require.NoError(t, r.Apply(report("a", "h:1", 6, 1, "a")), "restarted at the same address")
	require.ErrorIs(t, r.Apply(report("a", "h:1", 5, 5, "a")), ErrStale)
}

func TestTwoAgentsOfOneName(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := NewRegistry()
		require.NoError(t, r.Apply(report("a", "first:1", 10, 1, "a")))
		for range 5 { // both live and report
			time.Sleep(3 * time.Second)
			require.NoError(t, r.Apply(report("a", "first:1", 10, uint64(time.Now().Unix()), "a")))
			err := r.Apply(report("a", "second:1", 20, uint64(time.Now().Unix()), "a"))
			require.ErrorIs(t, err, ErrNameTaken)
			require.ErrorContains(t, err, "second:1 needs another --name")
		}
		i, _ := r.Instance("a")
		require.Equal(t, "https://first:1/i/a", i.URL)

		time.Sleep(takeover + time.Second) // the first is dead
		require.NoError(t, r.Apply(report("a", "second:1", 20, 99, "a")))
		i, _ = r.Instance("a")
		require.Equal(t, "https://second:1/i/a", i.URL)
		require.ErrorIs(t, r.Apply(report("a", "first:1", 10, 1<<40, "a")), ErrStale)

		r.AgentLeft("a", 20, "")
		require.ErrorIs(t, r.Apply(report("a", "first:1", 10, 1<<41, "a")), ErrStale, "late ones of an earlier boot stay late")
		require.NoError(t, r.Apply(report("a", "third:1", 30, 1, "a")), "who has left has no claim")

		time.Sleep(takeover + time.Second)
		require.NoError(t, r.Apply(report("a", "fourth:1", 5, 1, "a")), "a clock that was set back must not lock an agent out")
	})
}

func TestAgentLeaves(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	require.NoError(t, r.Apply(report("a", "h:1", 10, 1, "a")))
	r.AgentLeft("a", 9, "")
	require.Equal(t, Idle, state(t, r, "a"), "the leave message of an earlier process")
	r.AgentLeft("a", 10, "")
	i, _ := r.Instance("a")
	require.Equal(t, Offline, i.State)
	require.Contains(t, i.Reason, "its agent is gone without a word")
	require.False(t, i.Left)

	seen := i.Report
	seen.Direct, seen.URL = true, "http://gpu:8188"
	r.Observe(seen)
	require.Equal(t, Idle, state(t, r, "a"), "reached directly")

	require.NoError(t, r.Apply(report("a", "h:1", 11, 1, "a")))
	seen.Queue = 1
	r.Observe(seen)
	require.Equal(t, Idle, state(t, r, "a"), "the agent that is present knows better")
}

func TestSilentAgent(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := NewRegistry()
		require.NoError(t, r.Apply(report("a", "h:1", 10, 1, "a", "b")))
		r.SetRunning("b", "p")
		time.Sleep(staleAfter + time.Second)
		require.Equal(t, Offline, state(t, r, "a"))
		require.Equal(t, Busy, state(t, r, "b"), "the hub follows the run itself")
		require.NoError(t, r.Apply(report("a", "h:1", 10, 2, "a", "b")))
		require.Equal(t, Idle, state(t, r, "a"))
	})
}

func TestStates(t *testing.T) {
	type row struct {
		change func(*Registry, *InstanceReport)
		state  State
		reason string
	}
	beside.Cases(t, map[string]row{
		"idle":                   {func(*Registry, *InstanceReport) {}, Idle, ""},
		"busy by report":         {func(_ *Registry, i *InstanceReport) { i.Queue = 1 }, Busy, ""},
		"busy by the hub":        {func(r *Registry, _ *InstanceReport) { r.SetRunning("a", "p") }, Busy, ""},
		"foreign":                {func(_ *Registry, i *InstanceReport) { i.Queue, i.Foreign = 2, 1 }, Foreign, "prompts of others: 1"},
		"foreign behind ours":    {func(r *Registry, i *InstanceReport) { i.Queue, i.Foreign = 2, 1; r.SetRunning("a", "p") }, Foreign, "prompts of others: 1"},
		"loaded":                 {func(_ *Registry, i *InstanceReport) { i.Load = "the GPU is in use" }, Foreign, "the GPU is in use"},
		"its disk is full":       {func(r *Registry, i *InstanceReport) { i.DiskFull, i.Queue = true, 1; r.SetRunning("a", "p") }, Draining, "its disk is full"},
		"down":                   {func(_ *Registry, i *InstanceReport) { i.Up, i.Reason = false, "connection refused" }, Offline, "connection refused"},
		"draining":               {func(r *Registry, _ *InstanceReport) { r.SetDraining("a", true) }, Draining, "draining"},
		"draining in mid-run":    {func(r *Registry, _ *InstanceReport) { r.SetDraining("a", true); r.SetRunning("a", "p") }, Draining, "draining"},
		"sick":                   {func(r *Registry, _ *InstanceReport) { r.SetSick("a", "nothing runs") }, Sick, "nothing runs"},
		"set aside":              {func(r *Registry, _ *InstanceReport) { r.SetAside("a", "nothing comes of it") }, Sick, "nothing comes of it"},
		"aside and restarted":    {func(r *Registry, i *InstanceReport) { r.SetAside("a", "x"); i.Boot = 2 }, Sick, "x"},
		"aside and drained":      {func(r *Registry, _ *InstanceReport) { r.SetAside("a", "x"); r.SetDraining("a", true) }, Draining, "draining"},
		"aside and well":         {func(r *Registry, _ *InstanceReport) { r.SetAside("a", "x"); r.SetAside("a", "") }, Idle, ""},
		"sick and restarted":     {func(r *Registry, i *InstanceReport) { r.SetSick("a", "x"); i.Boot = 2 }, Idle, ""},
		"sick and down":          {func(r *Registry, i *InstanceReport) { r.SetSick("a", "x"); i.Up = false }, Offline, ""},
		"drained and back":       {func(r *Registry, _ *InstanceReport) { r.SetDraining("a", true); r.SetDraining("a", false) }, Idle, ""},
		"sick and well":          {func(r *Registry, _ *InstanceReport) { r.SetSick("a", "x"); r.SetSick("a", "") }, Idle, ""},
		"sick though restarting": {func(r *Registry, i *InstanceReport) { r.SetSick("a", "x"); i.Up, i.Boot = false, 0 }, Offline, ""},
	}, func(t *testing.T, c row) {
		r := NewRegistry()
		require.NoError(t, r.Apply(report("agent", "h:1", 1, 1, "a")))
		next := report("agent", "h:1", 1, 2, "a")
		c.change(r, &next.Instances[0])
		require.NoError(t, r.Apply(next))
		i, ok := r.Instance("a")
		require.True(t, ok)
		require.Equal(t, c.state, i.State)
		require.Equal(t, c.reason, i.Reason)
		require.Equal(t, "agent", i.Agent)
		require.False(t, i.Direct)
	})
}

func TestSickUntilTheQueueDrains(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	full := report("agent", "h:1", 1, 1, "a")
	full.Instances[0].Queue = 1
	require.NoError(t, r.Apply(full))
	r.SetSick("a", "a run hangs")
	full.Seq = 2
	require.NoError(t, r.Apply(full))
	require.Equal(t, Sick, state(t, r, "a"), "it still hangs on its prompt")
	require.NoError(t, r.Apply(report("agent", "h:1", 1, 3, "a")))
	require.Equal(t, Idle, state(t, r, "a"))
}

func TestInstancesComeAndGo(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	require.NoError(t, r.Apply(report("a", "h:1", 1, 1, "x", "y")))
	require.NoError(t, r.Apply(report("b", "h:2", 1, 1, "b")))
	require.NoError(t, r.Apply(report("a", "h:1", 1, 2, "x")))
	names := func() (list []string) {
		for _, i := range r.Instances() {
			list = append(list, i.Name)
		}
		return list
	}
	require.Equal(t, []string{"b", "x"}, names(), "what an agent no longer reports is gone")
	err := r.Apply(report("c", "h:3", 1, 1, "x", "z"))
	require.ErrorIs(t, err, ErrNameTaken)
	require.Equal(t, []string{"b", "x", "z"}, names(), "the others are taken all the same")
	i, _ := r.Instance("x")
	require.Equal(t, "a", i.Agent)

	require.False(t, r.Forget("x"), "it would come back")
	r.AgentLeft("a", 1, "")
	require.True(t, r.Forget("x"))
	require.False(t, r.Forget("x"))
	require.False(t, r.SetDraining("x", true))
}

// An agent that has just started may not have found all its instances yet.
func TestRestartedAgentNamesItsInstancesLater(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	require.NoError(t, r.Apply(report("a", "h:1", 1, 1, "x", "y")))
	r.AgentStopped("a", 1, "")
	require.NoError(t, r.Apply(report("a", "h:1", 2, 1)))
	for _, name := range []string{"x", "y"} {
		i, known := r.Instance(name)
		require.True(t, known)
		require.Equal(t, Offline, i.State)
		require.True(t, i.Left)
		require.Equal(t, "https://h:1/i/"+name, i.URL, "a run goes on there")
	}
	changes := r.Subscribe()
	changes.Take()
	require.NoError(t, r.Apply(report("a", "h:1", 2, 2)))
	require.Empty(t, changes.Take(), "nothing has changed")
	changes.Close()

	require.NoError(t, r.Apply(report("a", "h:1", 2, 3, "x")))
	require.Equal(t, Idle, state(t, r, "x"))
	require.Equal(t, Offline, state(t, r, "y"))
	require.NoError(t, r.Apply(report("b", "h:2", 1, 1, "y")), "whoever brings it may have it")
	i, _ := r.Instance("y")
	require.Equal(t, "b", i.Agent)
	require.NoError(t, r.Apply(report("a", "h:1", 2, 4)))
	_, known := r.Instance("x")
	require.False(t, known, "this process has named it before")

	// Without a word, and at once.
	require.NoError(t, r.Apply(report("a", "h:1", 2, 5, "x", "z")))
	require.NoError(t, r.Apply(report("a", "h:1", 3, 1, "x")))
	i, known = r.Instance("z")
	require.True(t, known)
	require.True(t, i.Left)
	r.AgentLeft("a", 3, "")
	i, _ = r.Instance("z")
	require.True(t, i.Left, "it had gone before")
	i, _ = r.Instance("x")
	require.False(t, i.Left)
}

// An agent that starts again and again with other names has no more of them than one agent may have.
func TestRestartedAgentWithOtherNames(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	for boot := range int64(5) {
		next := report("a", "h:1", boot+1, 1)
		for n := range MaxInstances / 2 {
			next.Instances = append(next.Instances, InstanceReport{Name: fmt.Sprintf("x%d.%d", boot, n), URL: "https://h:1/i/x", Up: true})
		}
		require.NoError(t, r.Apply(next))
		require.LessOrEqual(t, r.Len(), MaxInstances)
		require.Equal(t, Idle, state(t, r, fmt.Sprintf("x%d.0", boot)))
	}
	require.Equal(t, MaxInstances, r.Len())
}

func TestStaticInstances(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	_, err := r.AddStatic("10.0.0.5:8188")
	require.Error(t, err)
	name := must.Get(r.AddStatic("http://10.0.0.5:8188/"))(t)
	require.Equal(t, "10.0.0.5:8188", name)
	name = must.Get(r.AddStatic("http://10.0.0.5:8188"))(t)
	require.Equal(t, "10.0.0.5:8188", name)
	i, _ := r.Instance(name)
	require.Equal(t, Offline, i.State)
	require.Equal(t, "not reached yet", i.Reason)
	require.True(t, i.Direct)

	r.Observe(InstanceReport{Name: name, URL: i.URL, Direct: true, Up: true})
	require.Equal(t, Idle, state(t, r, name))
	_, err = r.AddStatic("http://10.0.0.5:8188")
	require.NoError(t, err, "a reload adds it again")
	require.Equal(t, Idle, state(t, r, name), "and changes nothing")
	require.ErrorIs(t, r.Apply(report("a", "h:1", 1, 1, name)), ErrNameTaken)
	r.Observe(InstanceReport{Name: "unknown", Up: true})
	r.RemoveStatic(name)
	_, ok := r.Instance(name)
	require.False(t, ok)
}

func TestStaticIsNotSilent(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := NewRegistry()
		name := must.Get(r.AddStatic("http://h:1"))(t)
		r.Observe(InstanceReport{Name: name, URL: "http://h:1", Up: true})
		time.Sleep(time.Hour)
		require.Equal(t, Idle, state(t, r, name), "its watcher tells when it goes")
	})
}

func TestForgetsInTime(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := NewRegistry()
		require.NoError(t, r.Apply(report("a", "h:1", 1, 1, "a")))
		require.NoError(t, r.Apply(report("c", "h:3", 1, 1, "c")))
		r.AgentStopped("a", 1, "")
		r.AgentLeft("c", 1, "")
		time.Sleep(forgetAfter + time.Minute)
		require.NoError(t, r.Apply(report("b", "h:2", 1, 1, "b")))
		require.Len(t, r.Instances(), 2, "one that has gone without a word is a fault, which stays for a week")
		time.Sleep(6 * 24 * time.Hour)
		require.NoError(t, r.Apply(report("b", "h:2", 1, 2, "b")))
		require.Len(t, r.Instances(), 1)
	})
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	changes := r.Subscribe()
	pending := func() []string {
		select {
		case <-changes.Ready():
			names := changes.Take()
			slices.Sort(names)
			return names
		default:
			return nil
		}
	}
	require.Empty(t, pending())
	require.NoError(t, r.Apply(report("a", "h:1", 1, 1, "a", "b")))
	r.SetRunning("a", "p")
	require.Equal(t, []string{"a", "b"}, pending())
	require.Empty(t, pending(), "changes are coalesced")
	require.NoError(t, r.Apply(report("a", "h:1", 1, 2, "a", "b")))
	require.Empty(t, pending(), "a repetition is no change")
	r.SetRunning("a", "p")
	require.Empty(t, pending())
	r.SetSick("a", "x")
	require.Equal(t, []string{"a"}, pending(), "the other has not changed")
	require.NoError(t, r.Apply(report("a", "h:1", 1, 3, "a")))
	require.Equal(t, []string{"b"}, pending(), "it has gone")
	r.Refuse("a", "another key")
	require.Equal(t, []string{"a"}, pending())
	name := must.Get(r.AddStatic("http://h:2"))(t)
	require.Equal(t, []string{name}, pending())

	late := r.Subscribe()
	<-late.Ready()
	require.ElementsMatch(t, []string{"a", name}, late.Take(), "all are new to it")
	late.Close()

	r.AgentLeft("a", 1, "")
	r.RemoveStatic(name)
	require.Equal(t, []string{"a", name}, pending())
	require.True(t, r.ForgetAgent("a"))
	require.Equal(t, []string{"a"}, pending())
	changes.Close()
	require.NoError(t, r.Apply(report("b", "h:1", 1, 1, "c")))
	require.Empty(t, pending())
}

// TestReportTouchesOnlyItsAgent puts records into the registry that nobody may touch:
// whoever looks at all instances because one has changed panics.
func TestReportTouchesOnlyItsAgent(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	require.NoError(t, r.Apply(report("a", "h:1", 1, 1, "x", "y")))
	for n := range 100 {
		r.instances[fmt.Sprintf("other%d", n)] = nil
	}
	require.NoError(t, r.Apply(report("a", "h:1", 1, 2, "x")))
	require.ErrorIs(t, r.Apply(report("a", "h:1", 1, 2, "x")), ErrStale)
	r.Refuse("a", "another key")
	r.SetRunning("x", "p")
	r.SetSick("x", "a run hangs")
	changes := r.Subscribe()
	r.AgentLeft("a", 1, "")
	changes.Close()
	require.True(t, r.Forget("x"))
	require.True(t, r.ForgetAgent("a"))
	require.Len(t, r.instances, 100)
}

// TestListsInOrder holds the kept order against instances that come, go and change
// hands.
func TestListsInOrder(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	list := func() (names []string) {
		for _, i := range r.Instances() {
			names = append(names, i.Agent+"/"+i.Name)
		}
		require.Equal(t, len(names), r.Len())
		return names
	}
	require.NoError(t, r.Apply(report("b", "h:2", 1, 1, "m", "c")))
	require.Equal(t, []string{"b/c", "b/m"}, list())
	require.NoError(t, r.Apply(report("a", "h:1", 1, 1, "d", "z")))
	require.Equal(t, []string{"b/c", "a/d", "b/m", "a/z"}, list())
	r.AgentLeft("b", 1, "")
	require.NoError(t, r.Apply(report("a", "h:1", 1, 2, "d", "m")))
	require.Equal(t, []string{"b/c", "a/d", "a/m"}, list(), "an absent agent's name may be taken")
	require.True(t, r.ForgetAgent("b"))
	require.Equal(t, []string{"a/d", "a/m"}, list(), "and what was its own no more stays")
}
