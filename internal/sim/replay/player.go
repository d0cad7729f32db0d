package replay

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// patience is how long a replay waits for something that was recorded when nothing
	// else happens, and enoughLooks is how often it looks in that time. On a busy
	// machine, time alone says little.
	patience    = 3 * time.Second
	enoughLooks = 20
	// longest is how long it waits while something still happens.
	longest = 2 * time.Minute
	// underWay is how long a frame may have been on its way when a request that ends
	// it was sent.
	underWay = 3 * time.Millisecond
)

// What is compared, in [Difference.What] and for [Player.Skip].
const (
	Status  = "status"
	Headers = "headers"
	Body    = "body"
	Frames  = "frames"
	Code    = "code" // with which a socket closes
	Order   = "order"
	Count   = "count"
)

// StatusFrames is the step name under which [Player.Skip] is asked about the
// order and the count of status frames.
const StatusFrames = "status frames"

// Difference is something that a client sees differently from the recording.
type Difference struct {
	// Step is the label of the request, or "socket NAME".
	Step string
	// Path is the recorded path of the request, with its query.
	Path string
	// What differs: one of the constants.
	What string
	// Want was recorded, Got was received.
	Want, Got string
}

// String shows both sides.
func (d Difference) String() string {
	return fmt.Sprintf("%s: %s\n--- recorded\n%s\n--- received\n%s", d.Step, d.What, d.Want, d.Got)
}

// Player plays one scenario. Set its exported fields before Play.
//
// Many methods: a scenario is played step by step, and what is learned from one
// step, such as ids, is needed to compare the next.
type Player struct {
	Trace Trace
	// URL is the address of the server under test.
	URL string
	// Dial connects to it. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Clock is the clock of the simulated instances.
	Clock *Clock
	// Idle reports whether the server is only waiting for the clock.
	Idle func() bool
	// Calm is how long Idle must hold before time advances. Default: 3 ms.
	Calm time.Duration
	// Late is how long it must hold before a missing frame is assumed to wait for
	// time to advance. Default: Calm.
	Late time.Duration
	// Local alternates between texts of this machine and what they stand for.
	Local []string
	// Skip reports what is neither compared nor waited for in a step. An empty What
	// asks about the step as a whole. Default: everything is compared.
	Skip func(step, what string) bool
	// OwnStatus means that the server decides about status frames itself: it counts
	// differently and sends fewer. In that case only the first frame of a socket and
	// the one before the end of a prompt are compared, without their number (but see
	// CountsStatus).
	OwnStatus bool
	// CountsStatus also compares the numbers in those status frames.
	CountsStatus bool
	// Shrinks means that a prompt may be held while another is shown, and that only
	// the newest of its progress and previews is kept. Neither is compared.
	Shrinks bool
	// Apart compares the messages of each prompt separately, whatever their relative
	// order, and ignores prompts that were not run in the recording. The numbers in
	// the names of pictures follow that order and are not compared.
	Apart bool
	// Addressed means that the messages of a prompt without a client id go to
	// nobody, while ComfyUI sends some of them to everybody.
	Addressed bool
	// Before is called before each request. Default: nothing.
	Before func(request *pyjson.Object)
	// Kill and Restart do to the server what the recorder did to its own.
	Kill, Restart func()

	ctx      context.Context
	sockets  map[string]*socket
	refused  map[string]bool // sockets that the recorded server let in
	ids      []string        // alternates between recorded text and what stands for it now
	answers  []answer
	ahead    time.Duration // of the clock before the recording
	found    []Difference
	path     string          // of the request that is being compared
	stopping bool            // the request before this step ends a run
	orphans  map[string]bool // prompts without a client id
}

type answer struct {
	step   *pyjson.Object
	status int
	header http.Header
	body   []byte
}

// Play plays the scenario and returns the differences.
func (p *Player) Play(ctx context.Context) []Difference {
	if p.Skip == nil {
		p.Skip = func(string, string) bool { return false }
	}
	p.Calm = cmp.Or(p.Calm, 3*time.Millisecond)
	p.Late = max(p.Late, p.Calm)
	p.ctx, p.sockets, p.refused, p.orphans = ctx, map[string]*socket{}, map[string]bool{}, p.Trace.orphans()
	defer func() {
		for _, s := range p.sockets {
			s.cancel()
			<-s.done
		}
	}()
	for n, step := range p.Trace.steps {
		if !p.step(step, p.Trace.steps[n+1:]) {
			return p.found
		}
	}
	p.rest(p.Late, nil)
	for p.Apart && p.Clock.wakeFirst(1<<62) {
		p.rest(p.Late, nil) // up to the end of what was not awaited above
	}
	for _, a := range p.answers {
		p.compareAnswer(a)
	}
	for _, name := range p.socketNames() {
		p.compareSocket(name)
	}
	return p.found
}

func (p *Player) socketNames() []string {
	var names []string
	for name := range p.sockets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// step plays one step and reports whether it makes sense to go on.
func (p *Player) step(step *pyjson.Object, after []*pyjson.Object) bool {
	s := p.sockets[step.String("client")]
	if p.refused[step.String("client")] {
		return true // which is reported, but what it should have been sent cannot be compared
	}
	switch kindOf(step) {
	case "ws_text", "ws_binary":
		return s != nil && p.expect(step, step.String("client"), s)
	case "ws_open", "ws_pong", "ws_close":
		return true
	}
	p.wait(step)
	if kind := kindOf(step); s == nil && (kind == "ws_send" || kind == "ws_client_close" || kind == "ws_client_abort") {
		return false // the socket was refused, which is reported
	}
	switch kindOf(step) {
	case "http":
		if p.Before != nil {
			p.Before(step.Object("request"))
		}
		return p.request(step)
	case "ws_connect":
		return p.connect(step, after)
	case "ws_send":
		_ = s.conn.Write(p.ctx, websocket.MessageText, []byte(p.renamed(step.String("text"))))
	case "ws_client_close":
		_ = s.conn.Close(websocket.StatusCode(integer(step, "code")), "")
		<-s.done
	case "ws_client_abort":
		_ = s.conn.CloseNow()
		<-s.done
	case "note":
		p.note(step.String("text"))
	}
	return true
}

func (p *Player) differs(step, what, want, got string) {
	p.found = append(p.found, Difference{Step: step, Path: p.path, What: what, Want: want, Got: got})
}

// wait lets the recorded time pass.
func (p *Player) wait(step *pyjson.Object) {
	until := recordedTime(step) + p.ahead
	stops := stops(step.Object("request"))
	if kindOf(step) == "ws_client_close" || stops {
		until += underWay
	}
	calm := p.Calm
	if p.stopping {
		calm = p.Late // it may be on its way to an instance
	}
	p.stopping = stops
	for p.rest(calm, nil); p.Clock.wakeFirst(until); p.rest(p.Calm, nil) {
	}
	p.Clock.advance(until)
}

// stops reports whether a request ends a run.
func stops(request *pyjson.Object) bool {
	path := request.String("path")
	return strings.HasSuffix(path, "/interrupt") || strings.HasSuffix(path, "/cancel")
}

func recordedTime(step *pyjson.Object) time.Duration {
	return time.Duration(at(step) * float64(time.Second))
}

// rest returns once the server has done nothing but wait for long enough, or once
// enough returns true. On a busy machine, where looking takes longer, it takes
// longer too.
func (p *Player) rest(calm time.Duration, enough func() bool) {
	pause := max(calm/8, time.Millisecond/2)
	limit := time.Now().Add(longest / 4)
	since, looks := time.Now(), 0
	for time.Since(since) < calm || looks < int(calm/pause) {
		if enough != nil && enough() || time.Now().After(limit) {
			return
		}
		<-time.After(pause)
		looks++
		if !p.Idle() {
			since, looks = time.Now(), 0
		}
	}
}

// expect waits for a recorded frame, advancing time as needed, and sets the clocks
// by it. It returns false if the frame does not arrive.
func (p *Player) expect(step *pyjson.Object, name string, s *socket) bool {
	text := step.String("text")
	if kindOf(step) == "ws_binary" {
		text = binaryMark
	}
	if p.recordedFrame(step, &s.before); p.Addressed && p.orphans[s.before] || !p.counts(text, s.want == 0) {
		return true
	}
	s.want++
	if p.Skip("socket "+name, Frames) {
		return true
	}
	enough := func() bool { return s.count(p.counts) >= s.want }
	limit := time.Now().Add(longest)
	// While sleepers wake, something still happens, however slowly.
	for since, quiet := time.Now(), 0; !enough() && time.Now().Before(limit); quiet++ {
		if time.Since(since) > patience && quiet > enoughLooks {
			break
		}
		p.rest(p.Late, enough)
		p.catchUp()
		if !enough() && p.Clock.wakeFirst(1<<62) {
			since, quiet = time.Now(), 0
		}
	}
	if n := s.count(p.counts); n < s.want {
		p.differs("socket "+name, Frames, fmt.Sprintf("%d frames so far, the last: %s", s.want, step.String("text")), fmt.Sprintf("%d frames", n))
		p.compareSocket(name)
		return false
	}
	p.ahead = p.Clock.time() - recordedTime(step)
	p.learnLetters(step.String("text"), s.last(p.counts, s.want))
	return true
}

// catchUp reads what has been sent. On a busy machine, frames wait in a socket for
// longer than the server has been idle. A pong follows them.
func (p *Player) catchUp() {
	ctx, cancel := context.WithTimeout(p.ctx, longest/4)
	defer cancel()
	for _, s := range p.sockets {
		select {
		case <-s.done:
		default:
			_ = s.conn.Ping(ctx) // a broken socket has nothing more to read
		}
	}
}

// counts reports whether a frame is one that the replay waits for.
func (p *Player) counts(frame string, first bool) bool {
	return first || !(p.OwnStatus && isStatus(frame)) && !(p.Shrinks && isProgress(frame))
}

func isStatus(frame string) bool { return strings.HasPrefix(frame, `{"type": "status"`) }

func isProgress(frame string) bool {
	return strings.HasPrefix(frame, `{"type": "progress`) || strings.HasPrefix(frame, binaryMark)
}

func (p *Player) note(text string) {
	switch {
	case strings.HasSuffix(text, "is sent"):
		p.Kill()
	case text == "started again":
		p.Restart()
	case strings.HasPrefix(text, "text frame of 5 MiB"):
		_ = p.sockets["flags-first"].conn.Write(p.ctx, websocket.MessageText, []byte(strings.Repeat("x", 5<<20)))
	case strings.HasPrefix(text, "ping frame"):
		ctx, cancel := context.WithTimeout(p.ctx, longest)
		defer cancel()
		if err := p.sockets["no-clientid"].conn.Ping(ctx); err != nil {
			p.differs("socket no-clientid", Frames, "a pong", err.Error())
		}
	case strings.HasPrefix(text, "binary frame"):
		_ = p.sockets["no-clientid"].conn.Write(p.ctx, websocket.MessageBinary, []byte{1, 2, 3})
	}
}

// learnLetters records the random letters of temporary files.
func (p *Player) learnLetters(was, is string) {
	old, now := tempLetters.FindString(was), tempLetters.FindString(is)
	if old != "" && now != "" && !slices.Contains(p.ids, old) {
		p.ids = append(p.ids, old, now)
	}
}

// renamed replaces recorded ids with the ids of this run.
func (p *Player) renamed(s string) string { return strings.NewReplacer(p.ids...).Replace(s) }

// original replaces the ids of this run with the recorded ones.
func (p *Player) original(s string) string {
	back := make([]string, len(p.ids))
	for i := 0; i+1 < len(p.ids); i += 2 {
		back[i], back[i+1] = p.ids[i+1], p.ids[i]
	}
	return strings.NewReplacer(append(back, p.Local...)...).Replace(s)
}
