package replay

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// The binary frames of which the recorder kept more than the event.
const (
	framePreview  = 1
	frameMetadata = 4
)

// binaryMark distinguishes the shape of a binary frame from a text.
const binaryMark = "\x00"

// socket collects the frames one client gets.
type socket struct {
	conn   *websocket.Conn
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	frames []string // for a binary frame its shape, behind binaryMark
	code   websocket.StatusCode
	want   int    // frames recorded up to the current step
	before string // prompt of the frame recorded before it
}

// count returns how many of the relevant frames have arrived.
func (s *socket) count(counts func(frame string, first bool) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, f := range s.frames {
		if counts(f, n == 0) {
			n++
		}
	}
	return n
}

// last returns the nth relevant frame.
func (s *socket) last(counts func(frame string, first bool) bool, n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := 0
	for _, f := range s.frames {
		if counts(f, seen == 0) {
			if seen++; seen == n {
				return f
			}
		}
	}
	return ""
}

func (p *Player) connect(step *pyjson.Object, after []*pyjson.Object) bool {
	name := step.String("client")
	header := http.Header{}
	for key, v := range step.Object("headers").All() {
		header.Set(key, text(v))
	}
	if origin := step.String("origin"); origin != "" {
		header.Set("Origin", origin)
	}
	mode := websocket.CompressionDisabled
	if step.String("offered_extensions") != "" {
		mode = websocket.CompressionNoContextTakeover
	}
	ctx, cancel := context.WithCancel(context.Background())
	conn, resp, err := websocket.Dial(ctx, p.URL+p.renamed(step.String("path")), &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: p.Dial, DisableKeepAlives: true}},
		HTTPHeader: header, Host: p.Trace.host(), CompressionMode: mode,
	})
	if refusal := refused(after, name); refusal != nil || err != nil {
		cancel()
		status := 0
		if resp != nil {
			status = resp.StatusCode
		}
		if want := int(integer(refusal, "status")); err == nil || status != want {
			p.differs("socket "+name, Status, fmt.Sprint(want), fmt.Sprint(status, " ", err))
			p.refused[name] = err != nil
			return err != nil
		}
		return true
	}
	conn.SetReadLimit(-1)
	s := &socket{conn: conn, cancel: cancel, done: make(chan struct{})}
	p.sockets[name] = s
	go s.read(ctx)
	return true
}

// refused returns the recorded refusal of the socket that was just dialled, or nil.
func refused(after []*pyjson.Object, name string) *pyjson.Object {
	for _, next := range after {
		if next.String("client") == name {
			if kindOf(next) == "ws_refused" {
				return next
			}
			return nil
		}
	}
	return nil
}

func (s *socket) read(ctx context.Context) {
	defer close(s.done)
	for {
		kind, data, err := s.conn.Read(ctx)
		s.mu.Lock()
		if err != nil {
			s.code = websocket.CloseStatus(err)
			s.mu.Unlock()
			return
		}
		text := string(data)
		if kind == websocket.MessageBinary {
			text = binaryMark + describe(data)
		}
		s.frames = append(s.frames, text)
		s.mu.Unlock()
	}
}

// describe turns a binary frame into what the recorder kept of it.
func describe(frame []byte) string {
	event := binary.BigEndian.Uint32(frame)
	o := &pyjson.Object{}
	o.Set("event", pyjson.Int(int64(event)))
	switch event {
	case framePreview:
		o.Set("image_type", pyjson.Int(int64(binary.BigEndian.Uint32(frame[4:]))))
	case frameMetadata:
		size := binary.BigEndian.Uint32(frame[4:])
		o.Set("metadata_text", pyjson.String(frame[8:8+size]))
	}
	return string(pyjson.Marshal(o))
}

// compareSocket compares the frames of a socket with the recording.
func (p *Player) compareSocket(name string) {
	step := "socket " + name
	if p.Skip(step, Frames) {
		return
	}
	want, got := p.recordedFrames(name), p.receivedFrames(name)
	if p.OwnStatus {
		want, got = ownStatus(want), ownStatus(got)
	}
	if p.Shrinks {
		progress := func(f frame) bool { return f.progress }
		want, got = slices.DeleteFunc(want, progress), slices.DeleteFunc(got, progress)
	}
	if p.Skip(StatusFrames, Order) {
		slices.SortStableFunc(want, statusLast)
		slices.SortStableFunc(got, statusLast)
	}
	if p.Addressed {
		want = slices.DeleteFunc(want, func(f frame) bool { return p.orphans[f.prompt] })
	}
	if p.Apart {
		want, got = apart(want, want), apart(got, want)
	}
	for i := range max(len(want), len(got)) {
		w, g := "(nothing)", "(nothing)"
		if i < len(want) {
			w = want[i].text
		}
		if i < len(got) {
			g = got[i].text
		}
		if w != g {
			where := fmt.Sprintf("frame %d of %d recorded, %d received\n", i, len(want), len(got))
			p.differs(step, Frames, where+w, g)
			return
		}
	}
}

// frame is a message in comparable form.
type frame struct {
	text   string
	prompt string // the prompt it belongs to, if it says so
	status bool
	end    bool // executing null
	// progress means that the frame is progress or a picture.
	progress bool
}

func (p *Player) recordedFrames(name string) []frame {
	var frames []frame
	before := ""
	for _, step := range p.Trace.steps {
		if step.String("client") != name {
			continue
		}
		switch kindOf(step) {
		case "ws_text", "ws_binary":
			frames = append(frames, p.recordedFrame(step, &before))
		case "ws_close":
			p.compareClose(name, step)
		}
	}
	return frames
}

// recordedFrame returns a message of the recording. before is the prompt of the
// previous message on the same socket.
func (p *Player) recordedFrame(step *pyjson.Object, before *string) frame {
	if kindOf(step) == "ws_binary" {
		return binaryFrame(step.Object("decoded"), before)
	}
	return p.textFrame(step.String("text"), before)
}

func (p *Player) receivedFrames(name string) []frame {
	s := p.sockets[name]
	s.mu.Lock()
	received := slices.Clone(s.frames)
	s.mu.Unlock()
	var frames []frame
	before := ""
	for _, f := range received {
		if shape, ok := strings.CutPrefix(f, binaryMark); ok {
			v, _ := pyjson.Parse([]byte(p.original(shape))) // describe wrote it
			o, _ := v.(*pyjson.Object)
			frames = append(frames, binaryFrame(o, &before))
			continue
		}
		frames = append(frames, p.textFrame(p.original(f), &before))
	}
	return frames
}

// textFrame returns the comparable form of a message.
func (p *Player) textFrame(text string, before *string) frame {
	f := frame{text: normalBody(text), status: isStatus(text), progress: isProgress(text)}
	v, _ := pyjson.Parse([]byte(text)) // a text that is not JSON has no members
	o, _ := v.(*pyjson.Object)
	data := o.Object("data")
	f.prompt = data.String("prompt_id")
	node, _ := data.Get("node")
	_, null := node.(pyjson.Null)
	f.end = o.String("type") == "executing" && null
	if !f.status {
		*before = f.prompt
	}
	if f.status && (p.OwnStatus || p.Skip(StatusFrames, Count)) {
		f.text = "status"
		if p.CountsStatus {
			left, _ := data.Object("status").Object("exec_info").Get("queue_remaining")
			f.text += " of " + string(pyjson.Marshal(left))
		}
		if sid := data.String("sid"); sid != "" {
			f.text += " with sid " + normalText(sid, "sid")
		}
	}
	return f
}

// binaryFrame returns the comparable form of a binary message. Unless it says
// otherwise, it belongs to the prompt of the previous message.
func binaryFrame(decoded *pyjson.Object, before *string) frame {
	f := frame{text: binaryShape(decoded), prompt: *before, progress: true}
	if v, err := pyjson.Parse([]byte(decoded.String("metadata_text"))); err == nil {
		if meta, ok := v.(*pyjson.Object); ok {
			f.prompt = meta.String("prompt_id")
			*before = f.prompt
		}
	}
	return f
}

// ownStatus keeps the status frames with a definite position: the first frame of a
// socket, and the one before the end of a prompt.
func ownStatus(frames []frame) []frame {
	var out []frame
	for n, f := range frames {
		if f.status && n > 0 && (n+1 == len(frames) || !frames[n+1].end) {
			continue
		}
		if f.status && n > 0 {
			f.prompt = frames[n+1].prompt
		}
		out = append(out, f)
	}
	return out
}

// statusLast moves status frames behind all others, keeping the order of both
// kinds.
func statusLast(a, b frame) int {
	rank := func(f frame) int {
		if f.status {
			return 1
		}
		return 0
	}
	return rank(a) - rank(b)
}

// apart groups the messages by prompt and leaves out prompts that are not in the
// recording.
func apart(frames, recorded []frame) []frame {
	known := map[string]bool{}
	for _, f := range recorded {
		known[f.prompt] = true
	}
	var out []frame
	for _, f := range frames {
		if known[f.prompt] {
			f.text = pictureNumber.ReplaceAllString(f.text, "_*_")
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b frame) int { return strings.Compare(a.prompt, b.prompt) })
	return out
}

func (p *Player) compareClose(name string, step *pyjson.Object) {
	s := p.sockets[name]
	code := websocket.StatusCode(integer(step, "code"))
	if code == 1006 {
		code = -1 // the library's word for "no close frame"
	}
	select {
	case <-s.done:
	case <-time.After(longest / 4):
		p.differs("socket "+name, Code, fmt.Sprint(code), "still open")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.code != -1 || code == -1 {
		p.compare("socket "+name, Code, fmt.Sprint(int(code)), fmt.Sprint(int(s.code)))
	}
}
