package sim

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"image/color"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

func (s *playedSocket) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.frames)
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

// body rebuilds a request body from what the recorder kept.
func (r *replay) body(rec *pyjson.Object) (body []byte, contentType string) {
	if rec.Object("headers").String("Content-Encoding") == "gzip" {
		var b bytes.Buffer
		zw := gzip.NewWriter(&b)
		_, _ = zw.Write([]byte("{}")) // a Buffer takes everything
		_ = zw.Close()
		return b.Bytes(), ""
	}
	if v, ok := rec.Get("json"); ok {
		return []byte(r.renamed(string(compact(v)))), ""
	}
	if v, ok := rec.Get("text"); ok {
		// The recorder read broken UTF-8 as U+FFFD.
		return bytes.ReplaceAll([]byte(r.renamed(pyStr(v))), []byte("\uFFFD"), []byte{0xFF}), ""
	}
	parts := rec.Array("multipart")
	if parts == nil {
		n, _ := numberOption(rec, "bytes")
		return bytes.Repeat([]byte(" "), int(n)), ""
	}
	const boundary = "----replayed"
	var b bytes.Buffer
	for _, part := range parts {
		p := part.(*pyjson.Object)
		fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=\"%s\"", boundary, p.String("name"))
		if !p.Has("filename") {
			fmt.Fprintf(&b, "\r\n\r\n%s\r\n", r.renamed(p.String("value")))
			continue
		}
		fmt.Fprintf(&b, "; filename=\"%s\"\r\nContent-Type: %s\r\n\r\n", p.String("filename"), p.String("type"))
		b.Write(fileContent(p))
		b.WriteString("\r\n")
	}
	fmt.Fprintf(&b, "--%s--\r\n", boundary)
	return b.Bytes(), "multipart/form-data; boundary=" + boundary
}

func compact(v pyjson.Value) []byte { return pyjson.Marshal(v) }

// fileContent makes up a file of the recorded size that differs where the
// recorded hashes differ. What can be a picture is one.
func fileContent(part *pyjson.Object) []byte {
	size, _ := numberOption(part, "bytes")
	sum := part.String("sha256")
	filler := sha256.Sum256([]byte(sum))
	for _, known := range []string{"<b>x</b>", `<svg xmlns="http://www.w3.org/2000/svg"/>`, "hello"} {
		if hash := sha256.Sum256([]byte(known)); hex.EncodeToString(hash[:]) == sum {
			return []byte(known)
		}
	}
	data := bytes.Repeat(filler[:], int(size)/len(filler)+1)[:size]
	if part.String("type") != "image/png" || strings.Contains(part.String("filename"), "broken") {
		return data
	}
	side := 16
	if size > 500 { // the recordings have two sizes of pictures
		side = 24
	}
	raw, _ := hex.DecodeString(sum[:6]) // a hash is hex
	picture := encodePNG(flat(side, side, color.NRGBA{raw[0], raw[1], raw[2], 128}), nil)
	const chunk = 12 // length, type and checksum
	if pad := int(size) - len(picture) - chunk; pad >= 0 {
		// A private chunk, which nobody copies.
		return append(appendChunk(slices.Clone(picture[:pngHeaderSize]), "prIv", make([]byte, pad)), picture[pngHeaderSize:]...)
	}
	return data
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
