package stream

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// job begins a run of a job as a hub does, and sends its start.
func (r *rig) job(client, prompt string, fence int64) *Run {
	run := r.streams.Begin(Key{Client: client}, Attempt{Prompt: prompt, Job: "job " + prompt, Fence: fence})
	run.Send(other(start(prompt)))
	return run
}

// complete returns the sequence of a run with these messages.
func complete(prompt string, messages ...string) []string {
	return words(start(prompt), messages, success(prompt), status(0), null(prompt))
}

func TestSocketElsewhere(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		time.Sleep(time.Hour) // the replay windows of new hubs have ended
		p := b.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me")), p.settled())
		run := a.job("me", "1", 1)
		run.Send(message(Executing, "executing"))
		run.Send(message(Progress, "progress"))
		run.Send(Message{Kind: Preview, Node: "2", Binary: true, Data: []byte("preview")})
		run.Send(other("executed"))
		require.Equal(t, words(start("1"), "executing", "progress", "binary:preview", "executed"), p.settled(),
			"at once, not when it ends")
		run.End(other(success("1")))
		require.Equal(t, words(success("1"), status(0), null("1")), p.settled())
		require.Equal(t, words("me/1"), b.delivered())
		require.Empty(t, a.delivered(), "it is noted once")
		require.Empty(t, a.streams.clients.clients, "the receipt has come")
		nothingKept(t, a, b)
	})
}

func TestSocketElsewhereComesLater(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		time.Sleep(time.Hour)
		k := Key{Client: "me"}
		b.streams.Posted(k, time.Now())
		posted := time.Now()
		time.Sleep(30 * time.Second)
		for _, prompt := range []string{"1", "2"} {
			a.streams.Posted(k, posted) // as in the job's record
			run := a.job("me", prompt, 1)
			run.Send(other("executed " + prompt))
			run.End(other(success(prompt)))
		}
		running := a.job("me", "3", 1)
		running.Send(other("executed 3"))
		time.Sleep(29 * time.Second)
		p := b.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), complete("1", "executed 1"), complete("2", "executed 2"), start("3"), "executed 3"), p.settled())
		running.End(other(success("3")))
		require.Equal(t, words(success("3"), status(0), null("3")), p.settled())
		require.Equal(t, words("me/1", "me/2", "me/3"), b.delivered())
		nothingKept(t, a, b)
	})
}

func TestEndedOnesComeFirstAfterAMove(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		c := x.rig(t, "c", Options{})
		first := a.job("me", "running at a", 1)
		time.Sleep(tick)
		b.job("me", "ended at b", 1).End(other(success("ended at b")))
		c.job("me", "running at c", 1)
		p := c.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), complete("ended at b"), start("running at a")), p.settled(),
			"what has ended, then what began first")
		first.End(other(success("running at a")))
		require.Equal(t, words(success("running at a"), status(0), null("running at a"), start("running at c")), p.settled())
	})
}

func TestClientBackAtTheSameHub(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		p := b.open("/ws?clientId=me")
		run := a.job("me", "1", 1)
		run.Send(other("executed"))
		p.settled()
		p.leave()
		run.End(other(success("1")))
		time.Sleep(59 * time.Second)
		p = b.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), complete("1", "executed")), p.settled(), "held where it will come back")
		p.leave()
		a.job("me", "2", 1).End(other(success("2")))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		require.Empty(t, b.streams.clients.clients, "nobody came back")
		require.Empty(t, a.streams.clients.clients)
		require.Empty(t, x.holders)
	})
}

func TestNothingIsSaidWhileTheSocketIsHere(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		p := a.open("/ws?clientId=me")
		p.settled()
		before := x.asked
		for n := range 10 {
			run := a.job("me", fmt.Sprint(n), 1)
			for range 100 {
				run.Send(message(Progress, "progress"))
			}
			run.End(other(success(fmt.Sprint(n))))
		}
		require.Len(t, p.settled(), 10*(100+4))
		require.Equal(t, before, x.asked, "no question, no message")
	})
}

func TestLargeMessageGoesByReference(t *testing.T) {
	twoHubs(t, Options{SpillBytes: 1 << 20, KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		longest := 0
		x.post = func(_ string, text []byte) [][]byte {
			longest = max(longest, len(text))
			return [][]byte{text}
		}
		p := b.open("/ws?clientId=me")
		p.settled()
		large := strings.Repeat("pixel", 1<<20)
		run := a.job("me", "1", 1)
		for range 2 {
			run.Send(Message{Kind: Result, Node: "2", Binary: true, Data: []byte(large)})
		}
		run.End(other(success("1")))
		got := p.settled()
		require.Equal(t, []string{start("1"), success("1"), status(0), null("1")}, slices.Delete(slices.Clone(got), 1, 3))
		require.True(t, got[1] == "binary:"+large && got[2] == got[1])
		require.Less(t, longest, inlineBytes+4096)
		require.Empty(t, x.blobs, "each is taken once")

		// A blob that cannot be fetched is requested again.
		x.post = func(_ string, text []byte) [][]byte {
			if x.blobs["lost"] == nil && len(x.blobs) > 0 {
				clear(x.blobs)
				x.blobs["lost"] = []byte{}
			}
			return [][]byte{text}
		}
		run = a.job("me", "2", 1)
		run.Send(Message{Kind: Result, Node: "2", Binary: true, Data: []byte(large)})
		run.End(other(success("2")))
		time.Sleep(10 * time.Second)
		got = p.settled()
		require.Equal(t, []string{start("2"), success("2"), status(0), null("2")}, slices.Delete(slices.Clone(got), 1, 2))
		require.True(t, got[1] == "binary:"+large)
	})
}

func TestNewerRunOfAJobEndsTheOlder(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		c := x.rig(t, "c", Options{})
		p := b.open("/ws?clientId=me")
		old := a.job("me", "1", 1)
		p.settled()
		young := c.job("me", "1", 2)
		require.Equal(t, words(start("1")), p.settled())
		old.Send(other("late"))
		old.End(other(success("1")))
		require.Empty(t, p.settled())
		young.End(other(success("1")))
		require.Equal(t, words(success("1"), status(0), null("1")), p.settled())
	})
}

func TestTell(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		k := Key{Client: "me"}
		p := b.open("/ws?clientId=me")
		synctest.Wait()
		require.True(t, b.streams.Holds(k))
		require.False(t, a.streams.Holds(k))
		p.settled()
		tell := func(prompt string) {
			b.streams.EndedElsewhere(k, prompt, "job "+prompt, other(start(prompt)), other(success(prompt)))
		}
		// The end has arrived in the stream.
		a.job("me", "1", 1).End(other(success("1")))
		require.Equal(t, complete("1"), p.settled())
		told, running := b.streams.Told(k, "job 1")
		require.True(t, told && !running)
		tell("1")
		require.Empty(t, p.settled())
		// It arrives after it was told.
		run := a.job("me", "2", 1)
		require.Equal(t, words(start("2")), p.settled())
		told, running = b.streams.Told(k, "job 2")
		require.True(t, !told && running)
		tell("2")
		tell("2")
		require.Equal(t, complete("2"), p.settled())
		run.End(other(success("2")))
		tell("3")
		a.job("me", "3", 1).End(other(success("3")))
		require.Equal(t, complete("3"), p.settled())
		nothingKept(t, a, b)
		// The same prompt was posted again at the other hub.
		a.streams.Ended(k, Attempt{Prompt: "3"}, other(start("3")), other(success("3")))
		require.Equal(t, complete("3"), p.settled())
	})
}

func TestEndedElsewhereWithoutARun(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		time.Sleep(time.Hour)
		p := b.open("/ws?clientId=me")
		p.settled()
		a.streams.Ended(Key{Client: "me"}, Attempt{Prompt: "1", Job: "job 1", Fence: 1}, other(start("1")), other(success("1")))
		require.Equal(t, complete("1"), p.settled())
		told, _ := b.streams.Told(Key{Client: "me"}, "job 1")
		require.True(t, told)
		nothingKept(t, a, b)
	})
}

func TestLiveAcrossHubs(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		p := b.open("/ws?clientId=me&events=live")
		p.settled()
		one, two := a.job("me", "1", 1), b.job("me", "2", 1)
		require.ElementsMatch(t, words(start("1"), start("2")), p.settled())
		one.Send(other("executed 1"))
		require.Equal(t, words("executed 1"), p.settled())
		two.Send(other("executed 2"))
		require.Equal(t, words("executed 2"), p.settled())
		one.End(other(success("1")))
		require.Equal(t, words(success("1"), status(0), null("1")), p.settled())
	})
}

// A client is told the end of another hub's run from the history. Until the client confirms that
// end, the other hub keeps its own: the hub that told it may die, and the end with it.
func TestToldEndIsKeptByItsHub(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		k := Key{Client: "me"}
		deaf := b.dial("/ws?clientId=me", nil)
		synctest.Wait()
		b.streams.EndedElsewhere(k, "1", "job 1", other(start("1")), other(success("1")))
		a.job("me", "1", 1).End(other(success("1"))) // its messages come late
		time.Sleep(3 * heartbeatInterval)
		require.NoError(t, deaf.conn.CloseNow())
		x.hubs["b"].sever(true)
		time.Sleep(2 * heartbeatInterval)
		p := a.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), complete("1")), p.settled())
		nothingKept(t, a)
	})
}

// A hub that tells the end of its own run from the history does not show it twice.
func TestOwnEndIsToldOnce(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, _ *exchange, a, _ *rig) { ownEndsOnce(t, a) })
}

func TestOwnEndIsToldOnceByTheOnlyHub(t *testing.T) {
	bubble(t, Options{KeepAlive: time.Hour}, ownEndsOnce)
}

func ownEndsOnce(t *testing.T, r *rig) {
	k := Key{Client: "me"}
	p := r.open("/ws?clientId=me")
	p.settled()
	run := r.job("me", "1", 1)
	tell := func(prompt string) {
		r.streams.EndedElsewhere(k, prompt, "job "+prompt, other(start(prompt)), other(success(prompt)))
	}
	tell("1") // while its end is on its way
	run.End(other(success("1")))
	require.Equal(t, complete("1"), p.settled())
	tell("1") // after the client has confirmed it
	tell("2") // of a run whose end comes late
	r.streams.Ended(k, Attempt{Prompt: "2", Job: "job 2", Fence: 1}, other(start("2")), other(success("2")))
	r.job("me", "2", 2).End(other(success("2")))
	require.Equal(t, complete("2"), p.settled())
	nothingKept(t, r)
}

// An end that went to the socket and was then dropped to save memory counts as told.
func TestDroppedEndIsNotToldAgain(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour, HoldBytes: 1000, SocketBytes: 8000}, func(t *testing.T, x *exchange, a, b *rig) {
		k := Key{Client: "me"}
		deaf := a.dial("/ws?clientId=me", nil)
		synctest.Wait()
		for n := range 9 {
			prompt := fmt.Sprint(n)
			a.job("me", prompt, 1).End(other(success(prompt)))
		}
		told, _ := a.streams.Told(k, "job 0")
		require.True(t, told)
		a.streams.clients.change(k, false, func(c *client) { require.Nil(t, c.line.lists.of("job 0")) })
		require.NoError(t, deaf.conn.CloseNow())
	})
}
