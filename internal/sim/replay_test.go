package sim

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// patience is how long a replay waits for a frame that was recorded.
	patience = 10 * time.Second
	// settled is how often in a row, half a millisecond apart, nothing must
	// happen before simulated time goes on.
	settled = 6
	// underWay is how long a frame may have been under way when a request that
	// ends it was sent.
	underWay = 3 * time.Millisecond
)

// TestReplay plays every recorded scenario against the simulator and compares
// all that a client can see. What it leaves out is in the table leftOut.
func TestReplay(t *testing.T) {
	for _, tr := range loadTraces(t) {
		t.Run(tr.version+"/"+tr.name, func(t *testing.T) {
			if o, ok := omitted(tr, "", ""); ok {
				t.Skip(o.reason)
			}
			if slices.Contains(slow, tr.name) && os.Getenv("COMFYHUB_SLOW") == "" {
				t.Skip("set COMFYHUB_SLOW=1 to play it")
			}
			t.Parallel()
			newReplay(t, tr).play()
		})
	}
}

// replay is the state of playing one scenario.
type replay struct {
	t       *testing.T
	tr      trace
	srv     *Server
	web     *httptest.Server
	host    string
	sockets map[string]*playedSocket
	ids     []string // recorded text and what stands for it now, in turn
	answers []playedAnswer
	clock   *steppedClock
	ahead   time.Duration // of the clock before the recording
}

type playedAnswer struct {
	step   *pyjson.Object
	status int
	header http.Header
	body   []byte
}

// replayConfig is the configuration the recorded server had.
func replayConfig(tr trace) Config {
	cfg := Config{
		Version: tr.version, Overhead: 6 * time.Millisecond,
		DisableAPINodes: true, IndexPage: "<!doctype html><title>dummy</title>\n", OmitClasses: []string{simulatedWork},
	}
	switch tr.name {
	case "variant-cache-lru":
		cfg.Cache, cfg.CacheSize = cacheLRU, 10
	case "variant-multi-user":
		cfg.MultiUser = true
	case "variant-cors-compress":
		cfg.CORSOrigin = "http://ui.example"
	}
	return cfg
}

func newReplay(t *testing.T, tr trace) *replay {
	cfg := replayConfig(tr)
	cfg.Dir = t.TempDir()
	srv, err := New(cfg)
	require.NoError(t, err)
	for _, name := range tr.outputsBefore() {
		full := filepath.Join(srv.Dir(), "output", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, nil, 0o644))
	}
	for _, name := range tr.inputsBefore() {
		require.NoError(t, os.WriteFile(filepath.Join(srv.Dir(), "input", name), nil, 0o644))
	}
	srv.proc.counter = tr.counter()
	r := &replay{t: t, tr: tr, srv: srv, sockets: map[string]*playedSocket{}, host: "127.0.0.1:8188", clock: &steppedClock{}}
	srv.clock = r.clock
	orders := tr.outputOrders()
	srv.arrange = func(outputs []string) []string {
		if order, ok := orders[setKey(outputs)]; ok {
			return order
		}
		return outputs
	}
	r.web = httptest.NewServer(srv.Handler())
	if tr.version == "0.33.0" {
		r.host = "127.0.0.1:8488"
	}
	t.Cleanup(func() {
		srv.Close()
		for _, s := range r.sockets {
			s.cancel()
			<-s.done
		}
		r.web.Close()
	})
	return r
}

func (r *replay) play() {
	for i, step := range r.tr.steps {
		switch kindOf(step) {
		case "ws_text", "ws_binary":
			s := r.sockets[step.String("client")]
			s.want++
			r.expect(step, step.String("client"), s)
			if r.t.Failed() {
				return
			}
			continue
		case "ws_open", "ws_pong", "ws_close":
			continue
		}
		r.wait(step)
		if r.t.Failed() {
			return
		}
		switch kindOf(step) {
		case "http":
			if r.tr.name == "jobs-odd" && step.Object("request").String("path") == "/prompt" && r.srv.proc.queue.remaining() == 0 {
				// The recorder emptied the history by requests it did not record.
				r.srv.proc.queue.forgetAll()
			}
			r.request(step)
		case "ws_connect":
			r.connect(step, r.tr.steps[i+1:])
		case "ws_send":
			s := r.sockets[step.String("client")]
			_ = s.conn.Write(r.t.Context(), websocket.MessageText, []byte(r.renamed(step.String("text"))))
		case "ws_client_close":
			s := r.sockets[step.String("client")]
			code, _ := numberOption(step, "code")
			_ = s.conn.Close(websocket.StatusCode(code), "")
			<-s.done
		case "ws_client_abort":
			s := r.sockets[step.String("client")]
			_ = s.conn.CloseNow()
			<-s.done
		case "note":
			r.note(step.String("text"))
		}
	}
	r.compare()
}

// wait lets the recorded time pass.
func (r *replay) wait(step *pyjson.Object) {
	until := recordedTime(step) + r.ahead
	path := step.Object("request").String("path")
	if kindOf(step) == "ws_client_close" || strings.HasSuffix(path, "/interrupt") || strings.HasSuffix(path, "/cancel") {
		until += underWay
	}
	for r.rest(); r.clock.wakeFirst(until); r.rest() {
	}
	r.clock.advance(until)
}

func recordedTime(step *pyjson.Object) time.Duration {
	return time.Duration(at(step) * float64(time.Second))
}

// rest returns when the simulator has nothing to do but to wait.
func (r *replay) rest() {
	limit := time.Now().Add(patience)
	for calm := 0; calm < settled && time.Now().Before(limit); calm++ {
		if !r.idle() {
			calm = 0
		}
		<-time.After(time.Millisecond / 2)
	}
}

// idle reports whether the run sleeps or there is none, and all frames are out.
func (r *replay) idle() bool {
	p := r.srv.process()
	if p == nil {
		return true
	}
	p.hub.mu.Lock()
	out := len(p.hub.outbox)
	p.hub.mu.Unlock()
	r.clock.mu.Lock()
	sleeping := len(r.clock.waiting)
	r.clock.mu.Unlock()
	return out == 0 && (sleeping > 0 || p.queue.remaining() == 0)
}

// expect waits for a recorded frame, letting time pass as needed, and sets the
// clocks by it.
func (r *replay) expect(step *pyjson.Object, name string, s *playedSocket) {
	if _, ok := omitted(r.tr, "socket "+name, "frames"); ok {
		return
	}
	limit := time.Now().Add(patience)
	for s.count() < s.want && time.Now().Before(limit) {
		if r.rest(); s.count() < s.want && !r.clock.wakeFirst(1<<62) {
			<-time.After(time.Millisecond)
		}
	}
	if s.count() < s.want {
		r.t.Errorf("socket %q got %d frames, %d were recorded", name, s.count(), s.want)
		r.compareSocket(name)
		return
	}
	r.ahead = r.clock.time() - recordedTime(step)
	s.mu.Lock()
	frame := s.frames[s.want-1]
	s.mu.Unlock()
	r.learnLetters(step.String("text"), frame)
}

// learnLetters notes the random letters of temporary files.
func (r *replay) learnLetters(was, is string) {
	old, now := tempLetters.FindString(was), tempLetters.FindString(is)
	if old != "" && now != "" && !slices.Contains(r.ids, old) {
		r.ids = append(r.ids, old, now)
	}
}

// renamed puts the ids of this run into recorded text.
func (r *replay) renamed(s string) string { return strings.NewReplacer(r.ids...).Replace(s) }

// original puts the recorded ids into text of this run.
func (r *replay) original(s string) string {
	back := make([]string, len(r.ids))
	for i := 0; i+1 < len(r.ids); i += 2 {
		back[i], back[i+1] = r.ids[i+1], r.ids[i]
	}
	return strings.NewReplacer(append(back, r.srv.files.base, "<path>", filepath.Dir(r.srv.files.base), "<path>")...).Replace(s)
}

func (r *replay) note(text string) {
	switch {
	case strings.HasSuffix(text, "is sent"):
		r.srv.Kill()
	case text == "started again":
		r.srv.Restart()
	case strings.HasPrefix(text, "text frame of 5 MiB"):
		_ = r.sockets["flags-first"].conn.Write(r.t.Context(), websocket.MessageText, bytes.Repeat([]byte("x"), 5<<20))
	case strings.HasPrefix(text, "ping frame"):
		ctx, cancel := context.WithTimeout(r.t.Context(), patience)
		defer cancel()
		assert.NoError(r.t, r.sockets["no-clientid"].conn.Ping(ctx))
	case strings.HasPrefix(text, "binary frame"):
		_ = r.sockets["no-clientid"].conn.Write(r.t.Context(), websocket.MessageBinary, []byte{1, 2, 3})
	}
}

// request plays one HTTP step.
func (r *replay) request(step *pyjson.Object) {
	rec := step.Object("request")
	body, contentType := r.body(rec)
	req, err := http.NewRequestWithContext(r.t.Context(), rec.String("method"), r.web.URL, bytes.NewReader(body))
	require.NoError(r.t, err)
	rawPath, rawQuery, _ := strings.Cut(r.renamed(rec.String("path")), "?")
	decoded, err := url.PathUnescape(rawPath)
	require.NoError(r.t, err)
	req.URL.Path, req.URL.RawPath, req.URL.RawQuery = decoded, rawPath, rawQuery
	req.Host = r.host
	for key, v := range rec.Object("headers").All() {
		switch {
		case key == "Host":
			req.Host = pyStr(v)
		case key == "Content-Length", key == "Content-Type" && contentType != "":
		default:
			req.Header.Set(key, r.renamed(pyStr(v)))
		}
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       10 * patience,
	}
	resp, err := client.Do(req)
	if step.Object("response").Has("error") {
		assert.Error(r.t, err, step.String("label"))
		return
	}
	if !assert.NoError(r.t, err, step.String("label")) {
		return
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	assert.NoError(r.t, err, step.String("label"))
	r.answers = append(r.answers, playedAnswer{step, resp.StatusCode, resp.Header, data})
	r.learn(step, resp.Header, data)
}

// learn notes what the simulator made up in place of recorded values.
func (r *replay) learn(step *pyjson.Object, header http.Header, data []byte) {
	was, _ := pyjson.Parse([]byte(step.Object("response").String("text"))) // NaN has no "json"
	rec, _ := was.(*pyjson.Object)
	now, err := pyjson.Parse(data)
	if o, ok := now.(*pyjson.Object); err == nil && ok {
		if was, is := rec.String("prompt_id"), o.String("prompt_id"); was != "" && is != "" && was != is {
			r.ids = append(r.ids, was, is)
		}
	}
	if s, ok := now.(pyjson.String); err == nil && ok && strings.HasSuffix(step.Object("request").String("path"), "/users") {
		r.ids = append(r.ids, pyStr(was), string(s))
	}
	get := recordedHeader(step.Object("response").Object("headers"))
	for _, name := range []string{"Etag", "Last-Modified"} {
		if was, is := get(name), header.Get(name); was != "" && is != "" && was != is && !slices.Contains(r.ids, was) {
			r.ids = append(r.ids, was, is)
		}
	}
	r.learnLetters(step.Object("response").String("text"), string(data))
}

// compare holds everything that was received against the recording.
func (r *replay) compare() {
	for _, a := range r.answers {
		r.compareAnswer(a)
	}
	for name := range r.sockets {
		r.compareSocket(name)
	}
}

func (r *replay) compareAnswer(a playedAnswer) {
	label := a.step.String("label")
	if _, ok := omitted(r.tr, label, "all"); ok {
		return
	}
	rec := a.step.Object("response")
	status, _ := numberOption(rec, "status")
	title := fmt.Sprintf("[%s] %s %s", label, a.step.Object("request").String("method"), a.step.Object("request").String("path"))
	assert.Equal(r.t, int(status), a.status, "%s: status", title)
	if _, ok := omitted(r.tr, label, "headers"); !ok {
		assert.Equal(r.t, normalHeaders(recordedHeader(rec.Object("headers"))),
			r.original(normalHeaders(a.header.Get)), "%s: headers", title)
	}
	if _, ok := omitted(r.tr, label, "body"); ok {
		return
	}
	text, ok := rec.Get("text")
	if !ok { // a binary or an empty body: the kind of its content
		head, _ := hex.DecodeString(rec.String("head_hex")) // the recorder wrote hex
		short := func(b []byte) string { return string(b[:min(4, len(b))]) }
		assert.Equal(r.t, short(head), short(a.body), "%s: first bytes", title)
		return
	}
	assert.Equal(r.t, normalBody(pyStr(text)), normalBody(r.original(string(a.body))), "%s: body", title)
}
