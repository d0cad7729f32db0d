package dispatch

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// unsaved is working with a picture that exists only on the socket.
var unsaved = strings.Replace(working, "SaveImage", "SaveImageWebsocket", 1)

// gallery is sees for the pictures: how many came since the prompt last began, and the type of its
// final message.
func (b *dispatching) gallery() (until func(id string) (end string, pictures int)) {
	sees := b.sees()
	return func(id string) (end string, pictures int) {
		sees(id, func(m comfyui.Message, binary []byte) {
			switch {
			case bytes.Contains(binary, []byte("\x89PNG")):
				pictures++
			case m.Type == comfyui.TypeExecutionStart:
				pictures = 0
			case binary == nil && m.Type != comfyui.TypeExecuting:
				end = m.Type
			}
		})
		return end, pictures
	}
}

// shownOnce requires that the client got the picture of a job along with its end, after one run was
// lost that had missed it.
func (b *dispatching) shownOnce(key string, until func(string) (string, int)) {
	end, pictures := until(key)
	require.Equal(b.t, comfyui.TypeExecutionSuccess, end)
	require.Equal(b.t, 1, pictures)
	j := b.reaches(key, job.Done)
	require.Len(b.t, j.Lost, 1)
	require.Contains(b.t, j.Lost[0], "went over a socket that was lost")
	require.Equal(b.t, 1, j.Attempts, "the job was not to blame")
}

// A hub that takes over a run knows neither what the previous hub missed nor whether it showed the
// client what it received. A result that went only over the socket is made again.
func TestUnsavedPictureOfAnAdoptedRun(t *testing.T) {
	kill := func(b *dispatching) (dead *Dispatcher) {
		dead = b.Dispatcher
		b.t.Cleanup(dead.Close)
		dead.stop() // it no longer says anything
		return dead
	}
	inBubbles(t, map[string]func(b *dispatching){
		"by the same hub after a restart":        func(b *dispatching) { b.restart("hub/2") },
		"by the same hub, whose socket was lost": func(b *dispatching) { b.instances[0].DropSockets() },
		"by another hub": func(b *dispatching) {
			kill(b)
			b.survivor(func(context.Context, string) bool { return true })
		},
	}, func(t *testing.T, adopt func(b *dispatching)) {
		b := newDispatching(t, 1, among)
		until := b.gallery()
		key := b.submit(unsaved)
		b.runs(key)
		adopt(b)
		b.shownOnce(key, until)
	})
}

// The hub has received the picture, and is killed before it has recorded the end of the job.
func TestUnsavedPictureThatAKilledHubHad(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		until := b.gallery()
		collecting := make(chan struct{})
		var once sync.Once
		b.instances[0].on("GET /history/", func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
			once.Do(func() { close(collecting) })
			<-r.Context().Done()
		})
		key := b.submit(unsaved)
		<-collecting
		b.instances[0].on("GET /history/", nil)
		b.restart("hub/2")
		b.shownOnce(key, until)
	})
}

// unknown is a submission to a hub that knows no node classes.
func unknown(s *queue.Submission) { s.Body.Outputs = nil }

// A hub that has just started accepts prompts before it knows any node classes, so it does not know
// their output nodes. Their pictures on the socket are results all the same: each is shown, and a
// run that may have missed one is repeated.
func TestUnsavedPictureOfUnknownNodes(t *testing.T) {
	inBubbles(t, map[string]func(b *dispatching){
		"its socket is lost": func(b *dispatching) { b.instances[0].DropSockets() },
		"it is adopted":      func(b *dispatching) { b.restart("hub/2") },
	}, func(t *testing.T, lose func(b *dispatching)) {
		b := newDispatching(t, 1)
		until := b.gallery()
		key := b.submit(unsaved, unknown)
		b.runs(key)
		lose(b)
		b.shownOnce(key, until)
	})
}

func TestUnsavedPicturesForALateClient(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		key := b.submit(strings.Replace(unsaved, `"batch_size": 1`, `"batch_size": 3`, 1), unknown)
		b.reaches(key, job.Done)
		end, pictures := b.gallery()(key)
		require.Equal(t, []any{comfyui.TypeExecutionSuccess, 3}, []any{end, pictures})
	})
}

// unreadable is a connection to Redis on which the body of a job whose run is being taken over
// cannot be read for a while.
type unreadable struct{ left atomic.Int32 }

func (u *unreadable) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (u *unreadable) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (u *unreadable) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if calledBy("adopting.takeOver") && u.left.Add(-1) >= 0 {
			for _, cmd := range cmds {
				cmd.SetErr(net.ErrClosed)
			}
			return net.ErrClosed
		}
		return next(ctx, cmds)
	}
}

// Redis goes away again just when a hub has taken over a run. The hub must not mistake the prompt
// for one without such results.
func TestUnsavedPictureWhoseGraphCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var u unreadable
		b := newDispatchingOn(t, "", &u, 1)
		until := b.gallery()
		key := b.submit(unsaved)
		b.runs(key)
		u.left.Store(3)
		b.restart("hub/2")
		b.shownOnce(key, until)
		require.LessOrEqual(t, u.left.Load(), int32(0), "it could not be read")
		require.Contains(t, string(b.entry(key).Graph), "SaveImageWebsocket")
	})
}

// swallowing is an instance whose sockets can lead nowhere: they stay open, and what the instance
// writes is lost on the way.
type swallowing struct {
	mu    sync.Mutex
	conns []*swallowed
}

type swallowed struct {
	net.Conn
	swallows atomic.Bool
}

func (s *swallowed) Write(p []byte) (int, error) {
	if s.swallows.Load() {
		return len(p), nil
	}
	return s.Conn.Write(p)
}

// hijacker hands out a connection as a swallowed one.
type hijacker struct {
	http.ResponseWriter
	by *swallowing
}

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := h.ResponseWriter.(http.Hijacker).Hijack()
	if err != nil {
		return nil, nil, err
	}
	s := &swallowed{Conn: conn}
	h.by.mu.Lock()
	defer h.by.mu.Unlock()
	h.by.conns = append(h.by.conns, s)
	return s, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(s)), nil
}

func swallow(i *scripted) *swallowing {
	s := &swallowing{}
	i.on("GET /ws", func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(hijacker{w, s}, r) })
	return s
}

// each calls f for the sockets opened so far.
func (s *swallowing) each(f func(*swallowed)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		f(c)
	}
}

// The socket looks open, but what the instance says is lost on the way: a tunnel or a proxy
// swallows it. It is cut when the run is over, at once, or never.
func TestUnsavedPictureIsSwallowed(t *testing.T) {
	inBubbles(t, map[string]func(b *dispatching, s *swallowing){
		"and the socket is cut at once": func(_ *dispatching, s *swallowing) { s.each(func(c *swallowed) { c.Close() }) },
		"and the socket is cut after the run": func(b *dispatching, s *swallowing) {
			var once sync.Once // the next run's socket stays
			b.instances[0].on("GET /history/", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				once.Do(func() { s.each(func(c *swallowed) { c.Close() }) })
				next.ServeHTTP(w, r)
			})
		},
		"and the socket stays": func(*dispatching, *swallowing) {},
	}, func(t *testing.T, cut func(b *dispatching, s *swallowing)) {
		b := newDispatching(t, 0, func(b *dispatching, _ *Config) { b.settings.StallTimeout = 5 * time.Second })
		i := newScripted(t)
		s := swallow(i)
		b.add(i)
		until := b.gallery()
		key := b.submit(unsaved)
		b.runs(key)
		s.each(func(c *swallowed) { c.swallows.Store(true) })
		cut(b, s)
		b.shownOnce(key, until)
	})
}

// ComfyUI silences a socket when an older one with the same client id closes, which may be long
// after the hub opened the newer one. The hub reopens it under another id, so only one picture is
// lost, and the instance is not taken for a sick one.
func TestSocketIsSilenced(t *testing.T) {
	inBubbles(t, map[string]string{"with a short run": unsaved, "with a run that is silent for long": strings.Replace(unsaved, `"seconds": 150`, `"seconds": 400`, 1)}, func(t *testing.T, graph string) {
		b := newDispatching(t, 1)
		until := b.gallery()
		b.reaches(b.submit(picture), job.Done)
		conn := b.Instances.Get(b.instances[0].name)
		before := conn.ClientID()
		old := must(conn.Client.Dial(t.Context(), before))
		_, err := old.Next(t.Context()) // the greeting
		require.NoError(t, err)
		old.Close()
		eventually(t, func() bool { return !b.instances[0].Listens(before) }, deadline, time.Millisecond)

		b.set(func(s *Settings) { s.StallTimeout = 4 * time.Second })
		key := b.submit(graph)
		b.shownOnce(key, until)
		require.True(t, b.instances[0].Listens(conn.ClientID()))
		require.Equal(t, 2+1, b.instances[0].Started(), "it ran twice, after the first picture")
	})
}

// A run is given out at the very moment the socket is lost, so nobody tells it.
func TestSocketIsLostJustBefore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		until := b.gallery()
		key := b.submit(unsaved)
		b.runs(key)
		b.Runs.Get(key).Holder().Tell(instance.Event{Kind: instance.Up})
		b.shownOnce(key, until)
	})
}
