package sim

import (
	"context"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// playedSocket collects the frames one client gets.
type playedSocket struct {
	conn   *websocket.Conn
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	frames []string
	closed bool
	code   websocket.StatusCode
	want   int // frames recorded up to the current step
}

func (s *playedSocket) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.frames)
}

func (r *replay) connect(step *pyjson.Object, after []*pyjson.Object) {
	name := step.String("client")
	header := http.Header{}
	for key, v := range step.Object("headers").All() {
		header.Set(key, pyStr(v))
	}
	if origin := step.String("origin"); origin != "" {
		header.Set("Origin", origin)
	}
	mode := websocket.CompressionDisabled
	if step.String("offered_extensions") != "" {
		mode = websocket.CompressionNoContextTakeover
	}
	ctx, cancel := context.WithCancel(context.Background())
	conn, resp, err := websocket.Dial(ctx, r.web.URL+r.renamed(step.String("path")), &websocket.DialOptions{HTTPHeader: header, Host: r.host, CompressionMode: mode})
	for _, next := range after {
		if next.String("client") != name {
			continue
		}
		if kindOf(next) == "ws_refused" {
			cancel()
			require.Error(r.t, err)
			status, _ := numberOption(next, "status")
			assert.Equal(r.t, int(status), resp.StatusCode, "socket %s", name)
			return
		}
		break
	}
	require.NoError(r.t, err, "socket %s", name)
	conn.SetReadLimit(-1)
	s := &playedSocket{conn: conn, cancel: cancel, done: make(chan struct{})}
	r.sockets[name] = s
	go s.read(ctx)
}

func (s *playedSocket) read(ctx context.Context) {
	defer close(s.done)
	for {
		kind, data, err := s.conn.Read(ctx)
		s.mu.Lock()
		if err != nil {
			s.closed, s.code = true, websocket.CloseStatus(err)
			s.mu.Unlock()
			return
		}
		text := string(data)
		if kind == websocket.MessageBinary {
			text = "\x00" + describe(data)
		}
		s.frames = append(s.frames, text)
		s.mu.Unlock()
	}
}

// describe turns a binary frame into what the recorder kept of it.
func describe(frame []byte) string {
	event := binary.BigEndian.Uint32(frame)
	o := dict("event", int(event))
	switch event {
	case framePreview:
		o.Set("image_type", pyjson.Int(int64(binary.BigEndian.Uint32(frame[4:]))))
	case frameMetadata:
		size := binary.BigEndian.Uint32(frame[4:])
		o.Set("metadata_text", pyjson.String(frame[8:8+size]))
	}
	return string(pyjson.Marshal(o))
}

func (r *replay) compareSocket(name string) {
	if _, ok := omitted(r.tr, "socket "+name, "frames"); ok {
		return
	}
	var want []string
	for _, step := range r.tr.steps {
		if step.String("client") != name {
			continue
		}
		switch kindOf(step) {
		case "ws_text":
			want = append(want, r.frame(step.String("text")))
		case "ws_binary":
			want = append(want, binaryShape(step.Object("decoded")))
		case "ws_close":
			r.compareClose(name, step)
		}
	}
	s := r.sockets[name]
	s.mu.Lock()
	frames := slices.Clone(s.frames)
	s.mu.Unlock()
	var got []string
	for _, f := range frames {
		if shape, ok := strings.CutPrefix(f, "\x00"); ok {
			v, _ := pyjson.Parse([]byte(r.original(shape))) // describe wrote it
			got = append(got, binaryShape(v.(*pyjson.Object)))
			continue
		}
		got = append(got, r.frame(r.original(f)))
	}
	if _, ok := omitted(r.tr, "status frames", "order"); ok {
		slices.SortStableFunc(want, statusLast)
		slices.SortStableFunc(got, statusLast)
	}
	for i := range max(len(want), len(got)) {
		w, g := "(nothing)", "(nothing)"
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if !assert.Equal(r.t, w, g, "socket %q, frame %d of %d recorded, %d received", name, i, len(want), len(got)) {
			return
		}
	}
}

// statusLast moves status frames behind all others, either kind in its order.
func statusLast(a, b string) int {
	rank := func(s string) int {
		if s == "status" || strings.Contains(s, `type: "status"`) {
			return 1
		}
		return 0
	}
	return rank(a) - rank(b)
}

// frame is the comparable form of a message.
func (r *replay) frame(text string) string {
	v, err := pyjson.Parse([]byte(text))
	o, ok := v.(*pyjson.Object)
	if err == nil && ok && o.String("type") == "status" {
		if _, skip := omitted(r.tr, "status frames", "count"); skip {
			return "status"
		}
	}
	return normalBody(text)
}

func (r *replay) compareClose(name string, step *pyjson.Object) {
	s := r.sockets[name]
	code, _ := numberOption(step, "code")
	if code == 1006 {
		code = -1 // the library's word for "no close frame"
	}
	select {
	case <-s.done:
	case <-time.After(patience):
		r.t.Errorf("socket %q is still open", name)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := omitted(r.tr, "socket "+name, "code"); !ok && (s.code != -1 || code == -1) {
		assert.Equal(r.t, websocket.StatusCode(code), s.code, "socket %q: close code", name)
	}
}
