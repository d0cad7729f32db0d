package stream

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRandomInterleavings drives a line with random runs, losses, ends and
// reconnects, and compares what a client sees with what a serial ComfyUI may show.
// The random choices are the same each time; COMFYHUB_SEED changes them.
func TestRandomInterleavings(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	for i := range uint64(25) {
		newModel(t, seed+i).play(300)
	}
}

// model simulates the runs and the client of one line, and knows what the client
// must be shown.
type model struct {
	t    *testing.T
	rand *rand.Rand
	line *line
	live bool
	on   bool

	running []*modelRun
	runs    map[string]*modelRun // all there ever were, by name
	ended   []*modelRun          // in order of end, not yet shown on this or an earlier socket
	prompts int
	socket  *modelSocket
}

// modelRun is one attempt. Each of its messages contains its name.
type modelRun struct {
	name     string
	prompt   string
	sequence *sequence
	kept     []string // messages that must never be dropped, in order
	over     bool
	lost     bool
	shown    bool // opened on the current stream
	received bool
}

// modelSocket checks, message by message, what one socket was sent.
type modelSocket struct {
	open    map[string][]string // kept messages by run whose sequence is open
	whole   map[uint64]*modelRun
	mark    uint64
	pending []*modelRun // ended, waiting for status, null and ping
}

func newModel(t *testing.T, seed uint64) *model {
	return &model{
		t: t, rand: rand.New(rand.NewPCG(seed, seed)), runs: map[string]*modelRun{},
		line: &line{buffer: buffer{limits: lineLimits{hold: 1 << 30, spill: 1 << 30}}},
	}
}

func (m *model) play(steps int) {
	for range steps {
		m.step()
	}
	// Everything ends, and a client that stays is sent all of it.
	for len(m.running) > 0 {
		m.end(m.running[0])
	}
	m.attach(false)
	m.confirm(m.socket.mark)
	require.True(m.t, m.line.lists.empty())
	require.Zero(m.t, m.line.buffer.memory)
	for _, run := range m.runs {
		require.True(m.t, run.received || run.lost, "%s was never received", run.name)
	}
}

func (m *model) step() {
	n := m.rand.IntN(100)
	switch {
	case n < 12 && len(m.running) < 6:
		m.begin()
	case n < 70 && len(m.running) > 0:
		m.send(m.any())
	case n < 80 && len(m.running) > 0:
		m.end(m.any())
	case n < 83 && len(m.running) > 0:
		m.lose(m.any())
	case n < 86:
		m.endWithoutRun()
	case n < 90:
		m.attach(m.rand.IntN(6) == 0)
	case n < 92 && m.on:
		m.on = false
		m.line.detach()
	case n < 96 && m.on && m.socket.mark > 0:
		m.confirm(m.rand.Uint64N(m.socket.mark + 1))
	}
}

func (m *model) any() *modelRun { return m.running[m.rand.IntN(len(m.running))] }

func (m *model) newRun() *modelRun {
	m.prompts++
	run := &modelRun{name: fmt.Sprintf("r%d", m.prompts), prompt: fmt.Sprintf("p%d", m.prompts)}
	m.runs[run.name] = run
	return run
}

func (m *model) begin() {
	run := m.newRun()
	m.running = append(m.running, run)
	run.sequence = m.line.begin(run.prompt, 1)
	m.line.send(run.sequence, run.message(Other, "start"))
	m.opened()
}

func (m *model) send(run *modelRun) {
	kind := Kind(m.rand.IntN(int(Result) + 1))
	m.line.send(run.sequence, run.message(kind, strconv.Itoa(m.rand.IntN(1000))))
}

// message makes a message of the run, and records it if it must arrive.
func (run *modelRun) message(kind Kind, text string) Message {
	data := run.name + " " + kind.String() + " " + text
	if !kind.shrinks() {
		run.kept = append(run.kept, data)
	}
	return Message{Kind: kind, Data: []byte(data)}
}

func (m *model) end(run *modelRun) {
	run.over = true
	m.running = slices.DeleteFunc(m.running, func(r *modelRun) bool { return r == run })
	if !run.shown {
		m.ended = append(m.ended, run)
	}
	m.line.end(run.sequence, []Message{run.message(Other, "success")})
	m.opened()
}

func (m *model) endWithoutRun() {
	run := m.newRun()
	run.over = true
	m.ended = append(m.ended, run)
	m.line.ended(Attempt{Prompt: run.prompt}, []Message{run.message(Other, "start"), run.message(Other, "error")})
	m.opened()
}

func (m *model) lose(run *modelRun) {
	run.over, run.lost = true, true
	m.running = slices.DeleteFunc(m.running, func(r *modelRun) bool { return r == run })
	if m.socket != nil {
		delete(m.socket.open, run.name)
	}
	m.line.lose(run.sequence)
	m.opened()
}

func (m *model) attach(live bool) {
	m.on, m.live = true, live
	m.socket = &modelSocket{open: map[string][]string{}, whole: map[uint64]*modelRun{}, mark: m.line.to.mark}
	if !live {
		kept := false
		for _, run := range m.running {
			run.shown = run.shown && !kept
			kept = kept || run.shown
		}
	}
	socket := m.socket
	m.line.attach(func(it item) {
		require.Same(m.t, socket, m.socket, "an old socket gets nothing")
		require.True(m.t, m.on)
		m.got(it)
	}, live)
	m.opened()
}

func (m *model) confirm(mark uint64) {
	received := prompts(m.line.confirm(mark))
	for n, run := range m.socket.whole {
		if n <= mark {
			require.Contains(m.t, received, run.prompt)
			run.received = true
			delete(m.socket.whole, n)
		}
	}
}

// got checks one item against what the socket was sent before.
func (m *model) got(it item) {
	s := m.socket
	switch {
	case it.probe != 0:
		require.Empty(m.t, s.pending, "it comes before a sequence, not in its end")
	case it.status:
		require.Len(m.t, s.pending, 1, "a status precedes the end of one prompt")
	case it.mark != 0:
		require.Len(m.t, s.pending, 1)
		require.Greater(m.t, it.mark, s.mark)
		s.mark = it.mark
		s.whole[it.mark] = s.pending[0]
		s.pending = nil
	case it.frame.kind == Other && strings.HasPrefix(string(it.frame.data), "{"):
		m.gotNull(it.frame.prompt)
	default:
		m.gotMessage(string(it.frame.data), it.frame)
	}
}

func (m *model) gotNull(prompt string) {
	for name, kept := range m.socket.open {
		if run := m.runs[name]; run.prompt == prompt {
			require.Equal(m.t, run.kept, kept, "nothing is lost and nothing is out of order")
			delete(m.socket.open, name)
			return
		}
	}
	require.Fail(m.t, "end of a prompt that is not open", prompt)
}

func (m *model) gotMessage(data string, f *frame) {
	s := m.socket
	require.Empty(m.t, s.pending, "nothing comes between the end of a prompt and executing null")
	name, rest, _ := strings.Cut(data, " ")
	run := m.runs[name]
	require.NotNil(m.t, run)
	require.Equal(m.t, run.prompt, f.prompt)
	if rest == "other start" {
		if !m.live {
			require.Empty(m.t, s.open, "one prompt at a time")
		}
		m.inTurn(run)
		s.open[name] = nil
		run.shown = true
	}
	kept, open := s.open[name]
	require.True(m.t, open, "a sequence begins with its start: %s", data)
	if !f.kind.shrinks() {
		s.open[name] = append(kept, data)
	}
	if rest == "other success" || rest == "other error" {
		s.pending = append(s.pending, run)
	}
}

// inTurn checks that a sequence that was not shown before is the one whose turn it is.
func (m *model) inTurn(run *modelRun) {
	if run.shown || m.live {
		m.ended = slices.DeleteFunc(m.ended, func(r *modelRun) bool { return r == run })
		return
	}
	if len(m.ended) > 0 {
		require.Same(m.t, m.ended[0], run, "what ended first comes first")
		m.ended = m.ended[1:]
		return
	}
	require.Same(m.t, m.running[0], run, "then the running one that began first")
}

// opened checks that nothing is held without need.
func (m *model) opened() {
	if !m.on {
		return
	}
	if len(m.ended) > 0 {
		require.NotEmpty(m.t, m.socket.open, "an ended sequence is held while none is open")
	}
	if len(m.running) > 0 {
		require.NotEmpty(m.t, m.socket.open, "a running sequence is held while none is open")
	}
	if m.live {
		require.Len(m.t, m.socket.open, len(m.running))
	}
}
