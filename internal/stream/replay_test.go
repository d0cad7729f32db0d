package stream

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReconnectInMidRun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		time.Sleep(time.Hour) // the replay window of a new hub has ended
		p := r.open("/ws?clientId=me")
		a := r.run("me", "a")
		a.Send(message(Executing, "executing 1"))
		a.Send(message(ProgressState, "state 1"))
		a.Send(other("executed 1"))
		p.settled()
		p.leave()
		time.Sleep(59 * time.Second)
		a.Send(message(ProgressState, "state 2"))
		p = r.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), start("a"), "executing 1", "executed 1", "state 2"), p.settled())

		p.leave()
		time.Sleep(61 * time.Second)
		a.Send(message(Progress, "1"))
		a.Send(message(ProgressState, "state 3"))
		p = r.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), "executing 1", "state 3"), p.settled(), "later it is as in ComfyUI")
		a.End(other(success("a")))
		require.Equal(t, words(success("a"), status(0), null("a")), p.settled())
	})
}

func TestEndedWhileAway(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		a := r.run("me", "a")
		p.settled()
		p.leave()
		a.End(other(success("a")))
		require.Empty(t, r.delivered())
		time.Sleep(30 * time.Second)
		p = r.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), start("a"), success("a"), status(0), null("a")), p.settled())
		require.Equal(t, words("me/a"), r.delivered())
		p.leave()
		p = r.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me")), p.settled(), "what was received does not come again")

		p.leave()
		r.run("me", "b").End()
		time.Sleep(61 * time.Second)
		synctest.Wait()
		require.Empty(t, r.streams.clients, "nothing is kept for a client that does not come back")
		require.Equal(t, words(hello(0, "me")), r.open("/ws?clientId=me").settled())
	})
}

func TestSocketOpensAfterThePost(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		time.Sleep(time.Hour) // the replay window of a new hub has ended
		r.streams.Posted(Key{Client: "me"}, time.Now())
		r.run("me", "a").End(other(success("a")))
		r.run("late", "b").End()
		time.Sleep(59 * time.Second)
		require.Equal(t, words(hello(0, "me"), start("a"), success("a"), status(0), null("a")), r.open("/ws?clientId=me").settled())
		require.Equal(t, words(hello(0, "late")), r.open("/ws?clientId=late").settled(), "nobody said that it was posted")
	})
}

func TestFreshHubGivesAWindow(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.streams.Ended(Key{Client: "me"}, Attempt{Prompt: "a"}, other(start("a")), other(success("a")))
		time.Sleep(50 * time.Second)
		require.Equal(t, words(hello(0, "me"), start("a"), success("a"), status(0), null("a")), r.open("/ws?clientId=me").settled(),
			"its socket went down with the hub before")
	})
}

func TestUnconfirmedIsReplayed(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		// A client that reads by hand answers no ping unless it reads on.
		p := r.dial("/ws?clientId=me", nil)
		r.run("me", "a").End()
		for range 4 {
			_, _, err := p.conn.Read(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, p.conn.CloseNow())
		synctest.Wait()
		require.Empty(t, r.delivered())
		p = r.open("/ws?clientId=me")
		time.Sleep(receiptGrace)
		require.Equal(t, words(hello(0, "me"), start("a"), status(0), null("a")), p.settled())
		require.Equal(t, words("me/a"), r.delivered())
	})
}

func TestReplayOfAPostedAgain(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		k := Key{Client: "me"}
		require.False(t, r.streams.Replay(k, "a"))
		r.run("me", "a").End()
		p.settled()
		require.False(t, r.streams.Replay(k, "a"), "received, so no longer known")
		r.streams.Ended(k, Attempt{Prompt: "a"}, other(start("a")), other(success("a")))
		require.Equal(t, words(start("a"), success("a"), status(0), null("a")), p.settled())
	})
}

// The hub that holds a socket and one at which the prompt was posted again both find that
// its end was not told. The client may have confirmed the first one before the second comes.
func TestTwoHubsTellOneEnd(t *testing.T) {
	t.Parallel()
	k := Key{Client: "me"}
	for name, first := range map[string]string{"the owner is first": "a", "the owner is second": "b"} {
		for _, confirmed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", confirmed: ", confirmed), func(t *testing.T) {
				twoHubs(t, Options{}, func(t *testing.T, _ *exchange, a, b *rig) {
					p := a.open("/ws?clientId=me")
					time.Sleep(time.Second)
					p.settled()
					tellers := []*rig{a, b}
					if first == "b" {
						slices.Reverse(tellers)
					}
					for _, r := range tellers {
						r.streams.EndedElsewhere(k, "a", "job a", other(start("a")), other(success("a")))
						if confirmed {
							time.Sleep(time.Second)
						}
					}
					time.Sleep(10 * time.Second)
					told := slices.DeleteFunc(p.settled(), func(m string) bool { return m == status(0) })
					require.Equal(t, words(start("a"), success("a"), null("a")), told)
				})
			})
		}
	}
}

// What the other hub sends arrives when the client has long confirmed the end.
func TestLateCopyOfAnEnd(t *testing.T) {
	k := Key{Client: "me"}
	twoHubs(t, Options{}, func(t *testing.T, x *exchange, a, b *rig) {
		p := a.open("/ws?clientId=me")
		time.Sleep(time.Second)
		p.settled()
		lose := func(lost bool) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.post = func(_ string, message []byte) [][]byte {
				if lost {
					return nil
				}
				return [][]byte{message}
			}
		}
		lose(true)
		for _, r := range []*rig{b, a} {
			r.streams.EndedElsewhere(k, "a", "job a", other(start("a")), other(success("a")))
		}
		time.Sleep(time.Second)
		lose(false)
		time.Sleep(time.Minute)
		told := slices.DeleteFunc(p.settled(), func(m string) bool { return m == status(0) })
		require.Equal(t, words(start("a"), success("a"), null("a")), told)
	})
}

func TestFlagsComeBeforeReplayedImages(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		a := r.run("me", "a")
		a.Send(Message{Kind: Result, Node: "2", Binary: true, Data: imageWithMetadata("{}", "jpeg bytes")})
		p := r.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), start("a")), p.settled())
		time.Sleep(100 * tick)
		p.announce()
		got := p.settled()
		require.Len(t, got, 2)
		require.Equal(t, "binary:"+string(imageWithMetadata("{}", "jpeg bytes")), got[0], "in the form that the client wants")
		p.leave()

		p = r.open("/ws?clientId=me")
		time.Sleep(flagGrace - tick)
		require.Len(t, p.settled(), 2)
		time.Sleep(2*tick + lateGrace)
		require.Equal(t, words("binary:"+string(image(formatJPEG, "jpeg bytes"))), p.settled(), "others say nothing")
	})
}
