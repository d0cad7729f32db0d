package hub_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/replay"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// TestReplay plays recordings of real ComfyUI servers against a hub with three instances,
// and against one with a single instance where the number may matter. What was recorded of two
// versions is played as the newer one has it, unless they differ. With COMFYHUB_SLOW, everything
// is played against both. Every difference that a client sees must be in the table
// differences, and every difference in the table must show.
func TestReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("plays all recordings")
	}
	traces := must(replay.Traces())(t)
	require.NotEmpty(t, traces)
	for name := range notPlayed {
		require.True(t, slices.ContainsFunc(traces, func(tr replay.Trace) bool { return tr.Name == name }), "no recording %s", name)
	}
	found := &ledger{met: map[string]bool{}}
	var played, all atomic.Int64
	var crew errgroup.Group
	crew.SetLimit(replayers)
	for _, count := range []int{1, 3} {
		for _, tr := range traces {
			if notPlayed[tr.Name] != "" || os.Getenv("COMFYHUB_SLOW") == "" && (count == 1 && !countMatters(tr) || outdated(traces, tr) && !versionMatters(tr)) {
				continue
			}
			all.Add(1)
			crew.Go(func() error {
				t.Run(fmt.Sprintf("%d/%s/%s", count, tr.Version, tr.Name), func(t *testing.T) {
					played.Add(1)
					loopback.Test(t, func(t *testing.T) {
						for _, d := range replayOn(t, tr, count) {
							if !found.explains(count, tr, d) {
								t.Error(d)
							}
						}
					})
				})
				return nil
			})
		}
	}
	require.NoError(t, crew.Wait())
	if played.Load() == all.Load() { // not when -run selects one of them
		found.check(t)
	}
}

// replayers is how many scenarios are played at once. t.Parallel is no use here: it goes by the
// number of processors, and scenarios mostly wait for nothing to happen.
const replayers = 6

// overlapping lists the scenarios in which a client posts prompts while another of its own runs.
var overlapping = []string{
	"queue", "queue-burst", "queue-shape", "order-front-number", "prompt-id-duplicate", "two-clients",
	"jobs", "jobs-odd", "jobs-cancel", "jobs-cancel-many", "interrupt",
}

// reordered lists the scenarios in which even a hub with one instance runs
// different prompts from the recorded server, or in a different order.
var reordered = []string{"prompt-id", "node-replacement", "order-front-number", "validation-new"}

// countMatters reports whether a client may see how many instances there are.
func countMatters(tr replay.Trace) bool {
	return slices.Contains(overlapping, tr.Name) || slices.Contains(reordered, tr.Name) || slices.ContainsFunc(places(), func(p place) bool {
		return p.instances != 0 && (p.scenarios == nil || slices.Contains(p.scenarios, tr.Name))
	})
}

// outdated reports whether there is the same recording of a newer version.
func outdated(traces []replay.Trace, tr replay.Trace) bool {
	return tr.Version == older && slices.ContainsFunc(traces, func(other replay.Trace) bool {
		return other.Name == tr.Name && other.Version != tr.Version
	})
}

// versionMatters reports whether a client sees another difference at an older version.
func versionMatters(tr replay.Trace) bool {
	return slices.ContainsFunc(places(), func(p place) bool {
		return p.version == tr.Version && (p.scenarios == nil || slices.Contains(p.scenarios, tr.Name))
	})
}

func replayOn(t *testing.T, tr replay.Trace, count int) []replay.Difference {
	clock := &replay.Clock{}
	faces := make([]*replay.Face, count)
	b := newBench(t, 0, func(b *bench) {
		patient(b)
		if tr.Name == "variant-cors-compress" {
			b.cors = "http://ui.example"
		}
		for n := range count {
			faces[n] = clock.Face()
			b.instances = append(b.instances, recordedInstance(t, tr, faces[n]))
		}
	})
	for range tr.Counter() {
		must(b.hub.Queue.TakeNumber(t.Context(), job.DefaultTenant))(t)
	}
	if tr.Name == "validation-new" && count == 1 {
		// As if a server of that version had refused such a value before: the only one here is busy.
		b.teaches(catalog.Question{Class: "ImageStitch", Input: "direction"})
	}
	p := &replay.Player{
		Trace: tr, URL: b.web.URL, Dial: loopback.Dial, Clock: clock, OwnStatus: true, Addressed: true, Calm: 5 * time.Millisecond, Late: 80 * time.Millisecond,
		Idle: func() bool { return b.idle(faces) }, Shrinks: slices.Contains(overlapping, tr.Name),
		Apart: count > 1 && slices.Contains(overlapping, tr.Name) || slices.Contains(reordered, tr.Name),
	}
	p.CountsStatus = tr.OneCaller() && !p.Apart
	if tr.Name == "variant-assets" {
		// Half of the messages on its socket report the progress of assets.
		p.Skip = func(step, what string) bool { return step == "socket c" && what == replay.Frames }
	}
	if tr.Name == "jobs-odd" {
		// The recorder cleared the history with requests it did not record.
		p.Before = func(request *pyjson.Object) {
			if n, err := b.hub.Queue.Count(t.Context(), "client:default/cl-jo"); request.String("path") == "/prompt" && err == nil && n == 0 {
				require.NoError(t, b.hub.Queue.ClearHistory(t.Context(), job.DefaultTenant, "client:default/cl-jo"))
			}
		}
	}
	for _, i := range b.instances {
		p.Local = append(p.Local, i.Dir(), "<path>")
	}
	p.Local = append(p.Local, filepath.Dir(b.instances[0].Dir()), "<path>")
	return p.Play(t.Context())
}

// recordedInstance returns an instance like the recorded server.
func recordedInstance(t *testing.T, tr replay.Trace, face *replay.Face) *instance {
	c := sim.Config{
		Version: tr.Version, OnlyClasses: slices.Concat([]string{}, tr.Classes()), Dir: t.TempDir(), Clock: face, Overhead: 6 * time.Millisecond, ArrangeOutputs: tr.Arrange(),
		DisableAPINodes: true, IndexPage: "<!doctype html><title>dummy</title>\n", OmitClasses: []string{"SimulatedWork"},
	}
	if tr.Name == "variant-cache-lru" {
		c.Cache, c.CacheSize = "lru", 10
	}
	i := newInstance(t, c)
	place := func(folder string, names []string) {
		for _, name := range names {
			full := filepath.Join(i.Dir(), folder, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
			require.NoError(t, os.WriteFile(full, nil, 0o644))
		}
	}
	place("output", tr.OutputsBefore())
	place("input", tr.InputsBefore())
	return i
}

// idle reports whether hub and instances only wait for the clock: everything that
// runs sleeps, and everything that waits has no instance.
func (b *bench) idle(faces []*replay.Face) bool {
	busy := 0
	for n, i := range b.instances {
		if !i.Quiet(faces[n].Sleepers()) {
			return false
		}
		busy += min(i.Remaining(), 1)
	}
	jobs, err := b.hub.Queue.Live(context.Background(), job.DefaultTenant)
	if err != nil {
		return false
	}
	waiting := 0
	for _, j := range jobs {
		if j.State == job.Queued {
			waiting++
		}
	}
	return len(jobs)-waiting == busy && (waiting == 0 || busy == len(b.instances))
}

// places are those of all differences.
func places() []place { return slices.Concat(slices.Collect(maps.Values(differences))...) }

// place is where a difference shows in the recordings. Empty fields match everything, except of.
type place struct {
	instances int // behind the hub
	version   string
	scenarios []string
	step      string
	path      string   // prefix of the request's path, without /api
	of        []string // of replay's Status, Headers, Body, Frames, Code; nil: Body and Frames
	// only matches the lines that may differ, as a regular expression.
	only string
}

const anyStep = ""

func in(scenarios ...string) place { return place{scenarios: scenarios} }

func (p place) at(step string) place       { p.step = step; return p }
func (p place) under(path string) place    { p.path = path; return p }
func (p place) its(what ...string) place   { p.of = what; return p }
func (p place) whole() place               { return p.its(replay.Status, replay.Headers, replay.Body) }
func (p place) lines(re string) place      { p.only = re; return p }
func (p place) behind(count int) place     { p.instances = count; return p }
func (p place) since(version string) place { p.version = version; return p }

func (p place) matches(count int, tr replay.Trace, d replay.Difference) bool {
	path := strings.TrimPrefix(d.Path, "/api")
	return (p.instances == 0 || p.instances == count) &&
		(p.version == "" || p.version == tr.Version) &&
		(p.scenarios == nil || slices.Contains(p.scenarios, tr.Name)) &&
		(p.step == anyStep || p.step == d.Step) &&
		(p.path == "" || strings.HasPrefix(path, p.path)) &&
		slices.Contains(p.parts(), d.What) &&
		(p.only == "" || onlyLines(regexp.MustCompile(p.only+"|"+contained), d))
}

// contained matches the headers that the hub gives to every answer but pages, so that they
// differ wherever anything differs.
const contained = "^(Content-Security-Policy|X-Content-Type-Options): "

// parts returns the parts of an answer that may differ at a place. A different
// status or header is not covered by a difference in content, and must be named.
func (p place) parts() []string {
	if p.of == nil {
		return []string{replay.Body, replay.Frames}
	}
	return p.of
}

// onlyLines reports whether all lines that only one side has are of one kind.
func onlyLines(kind *regexp.Regexp, d replay.Difference) bool {
	count := map[string]int{}
	for line := range strings.Lines(d.Want) {
		count[strings.TrimSuffix(line, "\n")]++
	}
	for line := range strings.Lines(d.Got) {
		count[strings.TrimSuffix(line, "\n")]--
	}
	for line, n := range count {
		if n != 0 && !kind.MatchString(line) {
			return false
		}
	}
	return true
}

// ledger records which places of the table were met, so that no outdated row stays in it.
type ledger struct {
	mu  sync.Mutex
	met map[string]bool
}

func (l *ledger) explains(count int, tr replay.Trace, d replay.Difference) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	explained := false
	for what, all := range differences {
		for n, p := range all {
			if p.matches(count, tr, d) {
				l.met[fmt.Sprint(what, n)] = true
				explained = true
			}
		}
	}
	return explained
}

// check reports the places that were not met.
func (l *ledger) check(t *testing.T) {
	for what, all := range differences {
		for n, p := range all {
			played := p.scenarios == nil || slices.ContainsFunc(p.scenarios, func(name string) bool { return notPlayed[name] == "" })
			if played && !l.met[fmt.Sprint(what, n)] {
				t.Errorf("no longer a difference: %s: %+v", what, p)
			}
		}
	}
}

// Each difference has a row in docs/compatibility.md, which says why and where it was seen, and each
// row is a difference.
func TestCompatibilityPage(t *testing.T) {
	t.Parallel()
	_, text, ok := strings.Cut(string(must(os.ReadFile("../../docs/compatibility.md"))(t)), "<!-- differences -->\n| What is different | Why | Seen in |\n| --- | --- | --- |\n")
	require.True(t, ok)
	text, _, ok = strings.Cut(text, "<!-- /differences -->")
	require.True(t, ok)
	rows := slices.Collect(strings.Lines(text))
	require.Len(t, rows, len(differences))
	for what, all := range differences {
		n := slices.IndexFunc(rows, func(row string) bool { return strings.HasPrefix(row, "| "+what) })
		require.GreaterOrEqual(t, n, 0, what)
		require.True(t, strings.HasSuffix(rows[n], " | "+seen(all)+" |\n"), "%s\nis seen in: %s", rows[n], seen(all))
	}
}

// seen lists the scenarios of places.
func seen(all []place) string {
	var names []string
	for _, p := range all {
		if p.scenarios == nil {
			return "all"
		}
		for _, s := range p.scenarios {
			names = append(names, "`"+s+"`")
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// teaches makes the hub know that its instances make a check of ComfyUI's own classes.
func (b *bench) teaches(q catalog.Question) {
	b.t.Helper()
	for name, info := range b.hub.Inventory.Infos() {
		text, ok := info.Lesson(q)
		i, known := b.hub.Fleet.Instance(name)
		require.True(b.t, ok && known)
		require.NoError(b.t, b.hub.Queue.Learn(b.t.Context(), []queue.Lesson{{Boot: i.Report.Version, Text: text}}))
	}
}
