package comfyui

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// fakeServer plays just enough of ComfyUI to be watched: a queue count, status
// messages, and answers that a test can break.
type fakeServer struct {
	*httptest.Server

	mu      sync.Mutex
	sockets map[*websocket.Conn]string
	sids    []string
	running []string // raw queue items
	pending []string
	// deaf stops the status messages, as a stolen socket does.
	deaf  bool
	infos int
	// handle answers first where it returns true.
	handle func(http.ResponseWriter, *http.Request) bool
}

// newFakeServer is for a test that runs beside others.
func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	t.Parallel()
	f := &fakeServer{sockets: map[*websocket.Conn]string{}}
	f.Server = serverApart(f)
	t.Cleanup(f.stop)
	return f
}

// stop ends the server as a killed process would.
func (f *fakeServer) stop() {
	f.dropSockets()
	f.Server.CloseClientConnections()
	f.Server.Close()
}

func (f *fakeServer) dropSockets() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.sockets {
		_ = c.CloseNow()
	}
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	handle := f.handle
	f.mu.Unlock()
	if handle != nil && handle(w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.URL.Path {
	case "/ws":
		f.mu.Unlock()
		f.serveSocket(w, r)
		f.mu.Lock()
	case "/system_stats":
		fmt.Fprint(w, `{"system": {"comfyui_version": "0.3.64", "argv": ["main.py"]}, "devices": [{"name": "cuda:0 Fake", "type": "cuda", "vram_total": 100, "vram_free": 60.5}]}`)
	case "/object_info":
		f.infos++
		fmt.Fprint(w, `{"A": {"x": NaN}}`)
	case "/queue":
		fmt.Fprintf(w, `{"queue_running": [%s], "queue_pending": [%s]}`, strings.Join(f.running, ", "), strings.Join(f.pending, ", "))
	case "/prompt":
		fmt.Fprintf(w, `{"exec_info": {"queue_remaining": %d}}`, len(f.running)+len(f.pending))
	default:
		http.NotFound(w, r)
	}
}

func (f *fakeServer) serveSocket(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	// Whatever ended it: a proxy in between waits for this side too.
	defer conn.CloseNow()
	sid := r.URL.Query().Get("clientId")
	f.mu.Lock()
	f.sockets[conn] = sid
	f.sids = append(f.sids, sid)
	n := len(f.running) + len(f.pending)
	f.mu.Unlock()
	_ = conn.Write(context.Background(), websocket.MessageText, statusMessage(n, sid))
	for {
		if _, _, err := conn.Read(context.Background()); err != nil {
			break
		}
	}
	f.mu.Lock()
	delete(f.sockets, conn)
	f.mu.Unlock()
}

// set changes the queue and tells all sockets.
func (f *fakeServer) set(running, pending []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running, f.pending = running, pending
	if f.deaf {
		return
	}
	for c := range f.sockets {
		_ = c.Write(context.Background(), websocket.MessageText, statusMessage(len(running)+len(pending), ""))
	}
}

func (f *fakeServer) answer(handle func(http.ResponseWriter, *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handle = handle
}

func newTestClient(t *testing.T, url string) *Client {
	t.Helper()
	c := must.Get(NewClient(url, Options{HeaderTimeout: time.Minute}))(t)
	t.Cleanup(c.Close)
	return c
}

// ours and theirs are queue items.
func ours(id string) string {
	return fmt.Sprintf(`[1, %q, {"1": {}}, {"client_id": "c", "comfyhub": {"job": "job-%s", "fence": 12}}, ["1"]]`, id, id)
}

func theirs(id string) string {
	return fmt.Sprintf(`[2.5, %q, {"1": {"x": NaN}}, {"client_id": "c"}, ["1"]]`, id)
}

// refusedURL is an address at which nothing listens.
func refusedURL(t *testing.T) string {
	t.Helper()
	s := serverApart(http.NotFoundHandler())
	s.Close()
	return s.URL
}

// serverApart starts a server at an address of its own: once it has ended, no other test's gets its
// port.
func serverApart(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	if l, err := net.Listen("tcp", "127.0.0.78:0"); err == nil { // only Linux has all of 127.0.0.0/8
		s.Listener.Close()
		s.Listener = l
	}
	s.Start()
	return s
}

// statusMessage is what a server tells its sockets; sid is in the first one only.
func statusMessage(remaining int, sid string) []byte {
	if sid != "" {
		sid = fmt.Sprintf(`, "sid": %q`, sid)
	}
	return fmt.Appendf(nil, `{"type": "status", "data": {"status": {"exec_info": {"queue_remaining": %d}}%s}}`, remaining, sid)
}

// recorded returns the lines of a file in testdata: what ComfyUI 0.3.64 and
// 0.33.0 sent, one body or frame a line.
func recorded(t *testing.T, name string) []string {
	t.Helper()
	file := must.Get(os.Open(filepath.Join("testdata", name)))(t)
	defer file.Close()
	unzipped := must.Get(gzip.NewReader(file))(t)
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 1<<20)
	var all []string
	for lines.Scan() {
		all = append(all, lines.Text())
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, all)
	return all
}

// The scanner reads real messages as a full parser does, and rewriting them
// changes exactly the ids.
func TestRecordedMessages(t *testing.T) {
	t.Parallel()
	types := map[string]int{}
	for _, line := range recorded(t, "frames.txt.gz") {
		v := must.Get(pyjson.Parse([]byte(line)))(t)
		root := v.(*pyjson.Object)
		data := root.Object("data")
		m, ok := ParseMessage([]byte(line))
		require.True(t, ok, line)
		require.Equal(t, root.String("type"), m.Type)
		require.Equal(t, data.String("prompt_id"), m.PromptID)
		require.Equal(t, data.String("node"), m.Node)
		require.Equal(t, data.String("display_node"), m.DisplayNode)
		for _, key := range data.Keys() {
			require.Equal(t, string(data.Raw(key)), string(m.Raw(key)))
		}
		if m.Type == TypeStatus {
			n, ok := m.QueueRemaining()
			require.True(t, ok)
			require.GreaterOrEqual(t, n, 0)
		}
		types[m.Type]++
		if m.PromptID == "" {
			continue
		}
		out := string(RewriteID([]byte(line), m.PromptID, "an-id-of-the-client"))
		require.NotContains(t, out, `"prompt_id": "`+m.PromptID+`"`)
		require.Equal(t, strings.ReplaceAll(line, `"`+m.PromptID+`"`, `"an-id-of-the-client"`), out)
	}
	for _, want := range []string{
		TypeStatus, TypeExecutionStart, TypeExecutionCached, TypeExecuting, TypeProgress, TypeProgressState, TypeExecuted,
		TypeExecutionSuccess, TypeExecutionError, TypeExecutionInterrupted, TypeFeatureFlags,
	} {
		require.NotZero(t, types[want], want)
	}
}

// The builders write what a server writes, byte for byte.
func TestBuildersAgreeWithRecordedMessages(t *testing.T) {
	t.Parallel()
	built := map[string]int{}
	for _, line := range recorded(t, "frames.txt.gz") {
		m, ok := ParseMessage([]byte(line))
		require.True(t, ok)
		at := timeOf(m)
		var got []byte
		switch m.Type {
		case TypeExecutionStart:
			got = ExecutionStart(m.PromptID, at)
		case TypeExecutionSuccess:
			got = ExecutionSuccess(m.PromptID, at)
		case TypeExecutionInterrupted:
			got = ExecutionInterrupted(m.PromptID, m.String("node_id"), m.String("node_type"), m.Strings("executed"), at)
		case TypeExecutionError:
			got = ExecutionError(m.PromptID, Failure{
				NodeID: m.String("node_id"), NodeType: m.String("node_type"), Executed: m.Strings("executed"),
				Message: m.String("exception_message"), Type: m.String("exception_type"), Traceback: m.Strings("traceback"),
			}, at)
			if string(m.Raw("current_inputs")) != "{}" || string(m.Raw("current_outputs")) != "[]" || m.Raw("timestamp") == nil {
				requireSameKeys(t, line, got)
				built[m.Type]++
				continue
			}
		default:
			continue
		}
		require.Equal(t, line, string(got))
		built[m.Type]++
	}
	require.Len(t, built, 4)
}

func requireSameKeys(t *testing.T, line string, got []byte) {
	t.Helper()
	want := must.Get(pyjson.Parse([]byte(line)))(t)
	have := must.Get(pyjson.Parse(got))(t)
	for _, key := range want.(*pyjson.Object).Object("data").Keys() {
		require.True(t, have.(*pyjson.Object).Object("data").Has(key), key)
	}
}

func TestRecordedHistory(t *testing.T) {
	t.Parallel()
	ends := map[string]int{}
	entries := 0
	for _, line := range recorded(t, "history.txt.gz") {
		require.True(t, pyjson.Members([]byte(line), func(id string, raw []byte) {
			entry, ok := ParseEntry(raw)
			require.True(t, ok)
			entries++
			ends[entry.End]++
			require.Equal(t, entry.Completed, entry.Status == "success")
			out := RewriteEntry(raw, EntryEdit{From: id, To: "an-id-of-the-client"})
			quotedID := string(quoted(id))
			if strings.Count(string(raw), quotedID) == 1+strings.Count(string(raw), `"prompt_id": `+quotedID) {
				require.Equal(t, strings.ReplaceAll(string(raw), quotedID, `"an-id-of-the-client"`), string(out))
			}
			require.Equal(t, string(raw), string(Rename(raw, func(f job.FileRef) job.FileRef { return f })))
		}))
	}
	require.Greater(t, entries, 50)
	for _, want := range []string{TypeExecutionSuccess, TypeExecutionError, TypeExecutionInterrupted} {
		require.NotZero(t, ends[want], want)
	}
}

func TestRecordedQueues(t *testing.T) {
	t.Parallel()
	items := 0
	for _, line := range recorded(t, "queue.txt.gz") {
		q, err := ParseQueue([]byte(line))
		require.NoError(t, err, line)
		require.LessOrEqual(t, len(q.Running), 1)
		require.Equal(t, len(q.Running)+len(q.Pending), q.Foreign())
		for _, item := range append(q.Running, q.Pending...) {
			items++
			require.NotEmpty(t, item.Number)
			require.True(t, strings.HasPrefix(string(item.Prompt), "{"))
			require.NotEmpty(t, item.Outputs)
		}
	}
	require.Greater(t, items, 10)
}
