package stream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

func TestFirstMessageIsStatusWithSID(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.setCount("me", 3)
		p := r.open("/ws?clientId=me")
		require.Equal(t, words(`{"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 3}}, "sid": "me"}}`), p.settled())
		r.streams.StatusChanged("me")
		require.Equal(t, words(`{"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 3}}}}`), p.settled(),
			"only the first has a sid")
		require.Equal(t, 1, r.streams.Sockets())
		for _, path := range []string{"/ws", "/ws?clientId="} {
			require.Regexp(t, `"sid": "[0-9a-f]{32}"}}$`, r.open(path).settled()[0])
		}
	})
}

func TestStatusIsCoalesced(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		for i := range 1000 {
			r.setCount("me", i)
			r.streams.StatusChanged("me", "unknown")
			time.Sleep(tick)
		}
		time.Sleep(time.Second)
		got := p.settled()
		require.Len(t, got, 11, "about ten a second")
		require.Equal(t, status(999), got[10], "the last one is right")
		// The status at the end of the client's own prompt is not delayed.
		for i := range 5 {
			r.setCount("me", 10-i)
			r.run("me", fmt.Sprint(i)).End()
			require.Equal(t, words(start(fmt.Sprint(i)), status(10-i), null(fmt.Sprint(i))), p.settled())
		}
		// It replaces one that is due.
		r.run("me", "x").End()
		r.streams.StatusChanged("me")
		r.run("me", "y").End()
		time.Sleep(time.Second)
		require.Len(t, p.settled(), 6)
	})
}

func TestStatusIsNeverHeld(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		r.run("me", "a")
		r.run("me", "b").End()
		require.Equal(t, words(start("a")), p.settled(), "b is held")
		r.setCount("me", 1)
		r.streams.StatusChanged()
		require.Equal(t, words(status(1)), p.settled())
	})
}

func TestKeepAlive(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		var pings int
		browser := r.dial("/ws?clientId=web", &websocket.DialOptions{
			HTTPHeader:     http.Header{"Origin": {"http://127.0.0.1"}},
			OnPingReceived: func(context.Context, []byte) bool { pings++; return true },
		})
		browser.read()
		p.settled()
		browser.settled()
		r.setCount("me", 2)
		time.Sleep(9*time.Second - tick)
		require.Empty(t, p.settled())
		time.Sleep(2 * tick)
		require.Equal(t, words(status(2)), p.settled(), "and the number is requested again")
		time.Sleep(27 * time.Second)
		require.Len(t, p.settled(), 3)
		require.Empty(t, browser.settled())
		require.Equal(t, 4, pings)
	})
}

func TestCountCannotBeHad(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.setCount("me", 4)
		p := r.open("/ws?clientId=me")
		p.settled()
		r.mu.Lock()
		r.fail = errors.New("away")
		r.mu.Unlock()
		r.streams.StatusChanged("me")
		require.Empty(t, p.settled(), "no number, no message")
		r.run("me", "a").End()
		require.Equal(t, words(start("a"), status(4), null("a")), p.settled(), "but an end is never held up")
	})
}

func TestCountIsSharedByTheSocketsOfACaller(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.ident.Caller = "tenant"
		var peers []*peer
		for i := range 20 {
			peers = append(peers, r.open(fmt.Sprint("/ws?clientId=", i)))
		}
		synctest.Wait()
		asked := r.asked
		r.setCount("tenant", 5)
		r.streams.StatusChanged("tenant")
		for i, p := range peers {
			require.Equal(t, words(hello(0, fmt.Sprint(i)), status(5)), p.settled())
		}
		require.Equal(t, 1, r.asked-asked)
	})
}

// A status has the current number, so it must not overtake what was queued before
// the job ended: clients that read 0 leave.
func TestStatusComesAfterWhatIsQueued(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.dial("/ws?clientId=me", nil) // reads nothing yet, so the writer is blocked
		a := r.run("me", "a")
		a.Send(other(executed("a")))
		synctest.Wait()
		r.streams.StatusChanged("me") // the queue reports that the job has ended
		time.Sleep(time.Second)
		p.read()
		time.Sleep(time.Second)
		require.Equal(t, words(hello(0, "me"), start("a"), executed("a"), status(0)), p.settled())
	})
}
