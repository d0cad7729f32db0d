package comfyui

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestNewClientAddress(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "127.0.0.1:8188", "ftp://x", "http://", "http://%zz"} {
		_, err := NewClient(bad, Options{})
		require.Error(t, err, bad)
	}
	c := must.Get(NewClient("http://u:secret@host:1/i/gpu%2F0/?x=1#f", Options{}))(t)
	require.NotContains(t, c.URL(), "secret")
	require.Equal(t, "http://host:1/i/gpu%2F0/queue", c.wire.url("/queue", nil))
}

func TestHistory(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.EscapedPath() {
		case "/history/a%2Fb":
			fmt.Fprint(w, `{"a/b": {"outputs": {"1": NaN}}}`)
		case "/history/odd":
			fmt.Fprint(w, `[]`)
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
	defer server.Close()
	c := newTestClient(t, server.URL)
	entry, found, err := c.History(t.Context(), "a/b")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, `{"outputs": {"1": NaN}}`, string(entry))
	_, found, err = c.History(t.Context(), "none")
	require.NoError(t, err)
	require.False(t, found)
	_, _, err = c.History(t.Context(), "odd")
	require.ErrorIs(t, err, ErrMalformed)
}

func TestQueue(t *testing.T) {
	t.Parallel()
	q := must.Get(ParseQueue([]byte(`{"queue_running": [` + ours("r") + `], "queue_pending": [[NaN, "z", {}, {}, []], [7, "b", {}, {}, []], 5, [], [7.0, "a", {"1": {}}, null, ["2", 3]], [-1, "first", {}, {"comfyhub": 1}, []]], "more": {}}`)))(t)
	require.Len(t, q.Running, 1)
	require.Equal(t, Mark{Job: "job-r", Fence: 12}, q.Running[0].Mark)
	var order []string
	for _, item := range q.Pending {
		order = append(order, item.ID)
	}
	require.Equal(t, []string{"first", "a", "b", "z"}, order, "in the order of execution, NaN last")
	require.Equal(t, []string{"2"}, q.Pending[1].Outputs)
	require.Equal(t, "7.0", q.Pending[1].Number)
	require.Equal(t, 4, q.Foreign())
	_, err := ParseQueue([]byte(`{"queue_running": [`))
	require.ErrorIs(t, err, ErrMalformed)
}

func TestUploadAndView(t *testing.T) {
	t.Parallel()
	name := `a "b" ü.png`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/upload/image":
			if r.ContentLength < 0 {
				w.WriteHeader(411)
				return
			}
			file, header, err := r.FormFile("image")
			if err != nil {
				w.WriteHeader(500)
				return
			}
			body, _ := io.ReadAll(file)
			if header.Filename != name || string(body) != "picture" || r.FormValue("overwrite") != "true" || r.FormValue("subfolder") != "s" {
				w.WriteHeader(418)
				return
			}
			fmt.Fprint(w, `{"name": "a (1).png", "subfolder": "s", "type": "input"}`)
		case r.URL.Query().Get("filename") != name || r.URL.Query().Get("subfolder") != "s":
			w.WriteHeader(404)
		case r.Header.Get("Origin")+r.Header.Get("Cookie")+r.Header.Get("Sec-Fetch-Site") != "":
			w.WriteHeader(403)
		default:
			w.Header().Set("ETag", `"1-7"`)
			http.ServeContent(w, r, "a.png", time.Time{}, strings.NewReader("picture"))
		}
	}))
	defer server.Close()
	c := newTestClient(t, server.URL)
	ref := job.FileRef{Type: "input", Subfolder: "s", Filename: name}
	stored := must.Get(c.Upload(t.Context(), ref, true, strings.NewReader("picture"), 7))(t)
	require.Equal(t, job.FileRef{Type: "input", Subfolder: "s", Filename: "a (1).png"}, stored)
	_, err := c.Upload(t.Context(), ref, true, strings.NewReader("picture"), -1)
	var status *StatusError
	require.ErrorAs(t, err, &status)
	require.Equal(t, 411, status.Status, "without a size the body is chunked")

	info, found, err := c.Stat(t.Context(), ref)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, FileInfo{ETag: `"1-7"`, Size: 7, ContentType: "image/png"}, info)
	_, found, err = c.Stat(t.Context(), job.FileRef{Filename: "none"})
	require.NoError(t, err)
	require.False(t, found)

	resp := must.Get(c.View(t.Context(), ref, http.Header{
		"Range": {"bytes=1-2"}, "Origin": {"http://evil"}, "Cookie": {"x=y"}, "Sec-Fetch-Site": {"cross-site"},
	}))(t)
	defer resp.Body.Close()
	body := must.Get(io.ReadAll(resp.Body))(t)
	require.Equal(t, 206, resp.StatusCode)
	require.Equal(t, "ic", string(body))
}

func TestControl(t *testing.T) {
	t.Parallel()
	got := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + string(body)
	}))
	defer server.Close()
	c := newTestClient(t, server.URL)
	require.NoError(t, c.Interrupt(t.Context(), "a"))
	require.NoError(t, c.Interrupt(t.Context(), ""))
	require.NoError(t, c.DeleteQueued(t.Context(), "a", "b"))
	require.NoError(t, c.DeleteHistory(t.Context(), "a"))
	require.NoError(t, c.DeleteHistory(t.Context()), "nothing to do is not sent")
	require.NoError(t, c.Free(t.Context(), true, false))
	for _, want := range []string{
		`/interrupt {"prompt_id": "a"}`, `/interrupt {}`, `/queue {"delete": ["a", "b"]}`, `/history {"delete": ["a"]}`,
		`/free {"unload_models": true, "free_memory": false}`,
	} {
		require.Equal(t, want, <-got)
	}
}

func TestSocketOutlivesItsDialContext(t *testing.T) {
	f := newFakeServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	socket := must.Get(newTestClient(t, f.URL).Dial(ctx, "sid"))(t)
	defer socket.Close()
	cancel()
	frame := must.Get(socket.Next(t.Context()))(t)
	require.Equal(t, string(statusMessage(0, "sid")), string(frame.Data))
	f.set([]string{theirs("x")}, nil)
	frame = must.Get(socket.Next(t.Context()))(t)
	m, ok := ParseMessage(frame.Data)
	require.True(t, ok)
	n, ok := m.QueueRemaining()
	require.True(t, ok)
	require.Equal(t, 1, n)
}

func TestDialErrors(t *testing.T) {
	_, err := newTestClient(t, refusedURL(t)).Dial(t.Context(), "s")
	require.ErrorIs(t, err, ErrGone)

	f := newFakeServer(t)
	f.answer(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(403); return true })
	_, err = newTestClient(t, f.URL).Dial(t.Context(), "s")
	var status *StatusError
	require.ErrorAs(t, err, &status)
	f.answer(func(w http.ResponseWriter, _ *http.Request) bool { w.Header().Set(HubHeader, "1"); return false })
	_, err = newTestClient(t, f.URL).Dial(t.Context(), "s")
	require.ErrorIs(t, err, ErrHub)
}

// An instance may be anybody's machine: what it answers takes neither memory
// nor time without end.
func TestAnswersAreBounded(t *testing.T) {
	f := newFakeServer(t)
	c := must.Get(NewClient(f.URL, Options{}))(t)
	defer c.Close()
	c.wire.bodyTimeout = 50 * time.Millisecond
	answer := func(handle http.HandlerFunc) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.handle = func(w http.ResponseWriter, r *http.Request) bool { handle(w, r); return true }
	}
	answer(func(w http.ResponseWriter, r *http.Request) { // says a byte and no more
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte("{"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	_, err := c.SystemStats(t.Context())
	require.ErrorIs(t, err, ErrUnclear)
	_, err = c.Submit(t.Context(), []byte("{}"))
	require.ErrorIs(t, err, ErrUnclear)
	answer(func(w http.ResponseWriter, r *http.Request) { // promises more than it may
		w.Header().Set("Content-Length", strconv.Itoa(maxObjectInfo+1))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	_, err = c.SystemStats(t.Context())
	require.ErrorIs(t, err, ErrTooLarge)
	_, _, err = c.ObjectInfo(t.Context(), nil)
	require.ErrorIs(t, err, ErrTooLarge)
	answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 2*maxHeader))
	})
	_, err = c.SystemStats(t.Context())
	require.Error(t, err)
}

// TestLengthIsNoMemory: a length that is only promised is not taken.
func TestLengthIsNoMemory(t *testing.T) {
	t.Parallel()
	resp := &http.Response{ContentLength: maxBody, Body: io.NopCloser(strings.NewReader("{}"))}
	require.LessOrEqual(t, cap(must.Get(readBody(resp, maxBody))(t)), 2*maxTrust)
}

// Reasons of lost runs are shown to clients, who must not learn from them where
// an instance is.
func TestErrorsTellNoAddress(t *testing.T) {
	t.Parallel()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed := ln.Addr().String()
	require.NoError(t, ln.Close())
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}))
	t.Cleanup(cut.Close)
	for _, base := range []string{"http://" + closed, cut.URL, "http://no-such-host.invalid:8188"} {
		c := must.Get(NewClient(base, Options{}))(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err := c.History(ctx, "x")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "127.0.0.1")
		require.NotContains(t, err.Error(), "no-such-host")
		require.NotContains(t, err.Error(), "http://")
		_, dialled := c.Dial(ctx, "sid")
		require.Error(t, dialled)
		require.NotContains(t, dialled.Error(), "127.0.0.1")
		require.NotContains(t, dialled.Error(), "no-such-host")
		if base == "http://"+closed {
			require.ErrorIs(t, err, syscall.ECONNREFUSED, "what it is can still be told")
			require.ErrorIs(t, err, ErrGone)
		}
		cancel()
	}
}

// A socket stands as long as its server gives signs of life: messages, a long one that comes
// slowly, or only what it answers to pings.
func TestKeepAlive(t *testing.T) {
	const patience = 15 * time.Second
	type row struct {
		serve func(ctx context.Context, conn *websocket.Conn)
		// late says that it gives no sign of life for some seconds, silent that it gives none.
		late, silent bool
	}
	beside.Cases(t, map[string]row{
		"it answers pings": {func(ctx context.Context, conn *websocket.Conn) {
			for err := error(nil); err == nil; {
				_, _, err = conn.Read(ctx)
			}
		}, false, false},
		"it sends a long message slowly": {func(ctx context.Context, conn *websocket.Conn) {
			w, err := conn.Writer(ctx, websocket.MessageText)
			for range 20 {
				if err == nil {
					_, err = w.Write(make([]byte, 16<<10)) // more than is kept until it is sent
				}
				select {
				case <-time.After(10 * time.Second):
				case <-ctx.Done():
				}
			}
		}, true, false},
		"it reads nothing": {func(ctx context.Context, _ *websocket.Conn) { <-ctx.Done() }, true, true},
	}, func(t *testing.T, c row) {
		loopback.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			server := loopback.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, err := websocket.Accept(w, r, nil)
				if err == nil {
					c.serve(ctx, conn)
					_ = conn.CloseNow()
				}
			}))
			defer server.Close()
			defer stop()
			client := must.Get(NewClient(server.URL, Options{Dial: loopback.Dial}))(t)
			defer client.Close()
			socket := must.Get(client.Dial(ctx, "sid"))(t)
			defer socket.Close()
			began := time.Now()
			var late atomic.Int64
			go socket.KeepAlive(ctx, patience, func() {}, func() { late.CompareAndSwap(0, int64(time.Since(began))) })
			reading, end := context.WithTimeout(ctx, 2*time.Minute)
			defer end()
			_, err := socket.Next(reading)
			if c.silent {
				require.ErrorIs(t, err, ErrSilent)
				require.Equal(t, QuietAfter+patience, time.Since(began))
			} else {
				require.NotErrorIs(t, err, ErrSilent)
				require.GreaterOrEqual(t, time.Since(began), 2*time.Minute)
			}
			if c.late {
				require.Equal(t, QuietAfter+lateAfter, time.Duration(late.Load()))
			} else {
				require.Zero(t, late.Load())
			}
		})
	})
}
