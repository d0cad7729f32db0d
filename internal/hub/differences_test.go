package hub

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim/replay"
)

// difference is something that a client of the hub sees differently from a client
// of one ComfyUI. The rows are written out in docs/compatibility.md.
type difference struct {
	// what differs, and why.
	what, why string
	places    []place
}

// place is where a difference shows in the recordings. Empty fields match
// everything, except of.
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

// ledger records which places of the table were met, so that no outdated row stays
// in it.
type ledger struct {
	mu  sync.Mutex
	met map[string]bool
}

func (l *ledger) explains(count int, tr replay.Trace, d replay.Difference) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	explained := false
	for n, row := range differences {
		for m, p := range row.places {
			if p.matches(count, tr, d) {
				l.met[fmt.Sprint(n, "/", m)] = true
				explained = true
			}
		}
	}
	return explained
}

// check reports the places that were not met.
func (l *ledger) check(t *testing.T) {
	for n, row := range differences {
		for m, p := range row.places {
			played := p.scenarios == nil || slices.ContainsFunc(p.scenarios, func(name string) bool { return notPlayed[name] == "" })
			if played && !l.met[fmt.Sprint(n, "/", m)] {
				t.Errorf("no longer a difference: %s: %+v", row.what, p)
			}
		}
	}
}

// TestCompatibilityPage keeps the table in docs/compatibility.md equal to the
// table that the replay is checked against. COMFYHUB_UPDATE=1 rewrites it.
func TestCompatibilityPage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const page = "../../docs/compatibility.md"
		const begin, end = "<!-- differences -->\n", "<!-- /differences -->\n"
		var table strings.Builder
		table.WriteString("| What is different | Why | Seen in |\n| --- | --- | --- |\n")
		for _, row := range differences {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", row.what, row.why, row.seen())
		}
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		before, rest, ok := strings.Cut(string(text), begin)
		require.True(t, ok)
		shown, after, ok := strings.Cut(rest, end)
		require.True(t, ok)
		if os.Getenv("COMFYHUB_UPDATE") != "" {
			require.NoError(t, os.WriteFile(page, []byte(before+begin+table.String()+end+after), 0o644))
			return
		}
		require.Equal(t, table.String(), shown, "COMFYHUB_UPDATE=1 rewrites the table")
	})
}

// seen lists the scenarios.
func (d difference) seen() string {
	var names []string
	for _, p := range d.places {
		if p.scenarios == nil {
			return "all"
		}
		for _, s := range p.scenarios {
			if s = "`" + s + "`"; !slices.Contains(names, s) {
				names = append(names, s)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
