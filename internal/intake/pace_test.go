package intake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

var anything = Class{Limit: 64 * mib, Values: 1000}

func packed(t *testing.T, text string) *bytes.Buffer {
	t.Helper()
	return bytes.NewBuffer(pack(t, "gzip", text))
}

// arrives takes a body in, and gives it up.
func (in *Intake) arrives(t *testing.T, r *http.Request, share string) error {
	t.Helper()
	b, err := in.Receive(r, share, anything)
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = b.Load(t.Context())
	return err
}

// took is the time, which is false, that something takes.
func took(do func()) time.Duration {
	begin := time.Now()
	do()
	return time.Since(begin)
}

// A sender's tenth large body waits for the first one, whether it arrives, is
// unpacked, or is dropped. Small ones and those of others do not.
func TestPaceOfOneSender(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 3*mib)
	synctest.Test(t, func(t *testing.T) {
		in := New(Options{Dir: t.TempDir(), Wait: time.Hour})
		first, err := in.Receive(request(strings.NewReader(large), ""), "greedy", anything)
		require.NoError(t, err)
		_, err = first.Load(t.Context())
		require.NoError(t, err)
		var done atomic.Int32
		wait := func(do func()) {
			go func() { do(); done.Add(1) }()
		}
		for range 3 {
			wait(func() { _ = in.arrives(t, request(strings.NewReader(large), ""), "greedy") })
			wait(func() { _ = in.arrives(t, request(packed(t, "{}"), "gzip"), "greedy") })
			wait(func() { in.Discard(request(strings.NewReader(large), ""), "greedy", 64*mib) })
		}
		<-time.After(time.Minute)
		synctest.Wait()
		require.Zero(t, done.Load())
		require.Zero(t, took(func() {
			require.NoError(t, in.arrives(t, request(strings.NewReader("{}"), ""), "greedy"))
			require.NoError(t, in.arrives(t, request(strings.NewReader(large), ""), "modest"))
			require.NoError(t, in.arrives(t, request(packed(t, large[:mib]), "gzip"), "modest"))
		}))
		first.Close()
		<-time.After(10 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 9, done.Load())
		require.Empty(t, in.pace.of)
	})
}

// A body that is refused delays the next one of its sender, and nobody else.
func TestPaceAfterRefusal(t *testing.T) {
	type row struct {
		body, encoding string
		err            error
	}
	beside.Cases(t, map[string]row{
		"a bomb":                   {strings.Repeat(" ", 8*mib), "gzip", ErrInflated},
		"values":                   {strings.Repeat(" ", 2*mib) + strings.Repeat("1,", 2000), "", ErrValues},
		"values, packed":           {strings.Repeat("1,", 2000), "gzip", ErrValues},
		"depth":                    {strings.Repeat(" ", 2*mib) + strings.Repeat("[", 2000), "", ErrDeep},
		"a small one is cheap":     {strings.Repeat("1,", 2000), "", ErrValues},
		"a good one costs nothing": {strings.Repeat("x", 2*mib), "", nil},
	}, func(t *testing.T, tt row) {
		synctest.Test(t, func(t *testing.T) {
			in := New(Options{Dir: t.TempDir()})
			body := io.Reader(strings.NewReader(tt.body))
			if tt.encoding != "" {
				body = packed(t, tt.body)
			}
			require.ErrorIs(t, in.arrives(t, request(body, tt.encoding), "a"), tt.err)
			next := func(share string) time.Duration {
				return took(func() { require.NoError(t, in.arrives(t, request(packed(t, "{}"), "gzip"), share)) })
			}
			require.Zero(t, next("b"))
			require.Zero(t, took(func() { require.NoError(t, in.arrives(t, request(strings.NewReader("{}"), ""), "a")) }))
			pause := next("a")
			if tt.err == nil || len(tt.body) < unpaced && tt.encoding == "" {
				require.Zero(t, pause)
			} else {
				require.GreaterOrEqual(t, pause, minPause)
				require.LessOrEqual(t, pause, maxPause)
			}
			require.Zero(t, next("a"))
			require.Empty(t, in.pace.of)
		})
	})
}

// A body that is refused after it was loaded delays the next one of its sender,
// too, if it is a large one.
func TestPaceAfterLateRefusal(t *testing.T) {
	type row struct {
		size  int
		pause time.Duration
	}
	beside.Cases(t, map[string]row{
		"large": {3 * mib, refusal * 20 * time.Millisecond},
		"small": {unpaced, 0},
	}, func(t *testing.T, tt row) {
		synctest.Test(t, func(t *testing.T) {
			in := New(Options{Dir: t.TempDir()})
			b, err := in.Receive(request(strings.NewReader(strings.Repeat("x", tt.size)), ""), "a", anything)
			require.NoError(t, err)
			_, err = b.Load(t.Context())
			require.NoError(t, err)
			<-time.After(20 * time.Millisecond) // the work on it, in false time
			b.Refuse()
			b.Close()
			pause := took(func() { require.NoError(t, in.arrives(t, request(packed(t, "{}"), "gzip"), "a")) })
			require.InDelta(t, tt.pause, pause, float64(refusal*tt.size)*float64(time.Second)/copyRate)
		})
	})
}

// A body that is slow to arrive keeps no other one of its sender from its turn.
func TestPaceOfSlowBodies(t *testing.T) {
	noise := packed(t, strings.Repeat("x", mib)).Bytes()
	type row struct {
		part     []byte
		encoding string
	}
	beside.Cases(t, map[string]row{
		"plain":  {bytes.Repeat([]byte("x"), 2*mib), ""},
		"packed": {noise[:len(noise)/2], "gzip"},
	}, func(t *testing.T, tt row) {
		synctest.Test(t, func(t *testing.T) {
			in := New(Options{Dir: t.TempDir()})
			out, feed := io.Pipe()
			slow := make(chan error, 1)
			go func() { slow <- in.arrives(t, request(out, tt.encoding), "a") }()
			_, err := feed.Write(tt.part)
			require.NoError(t, err)
			synctest.Wait()
			require.Zero(t, took(func() {
				require.NoError(t, in.arrives(t, request(packed(t, "{}"), "gzip"), "a"))
			}))
			feed.CloseWithError(errors.New("gone"))
			require.ErrorIs(t, <-slow, ErrBroken)
		})
	})
}

// A sender whose bodies wait for each other pauses for as long as it worked; a
// refused body costs it more, in proportion to the work. One body alone is not
// held back.
func TestPauses(t *testing.T) {
	type row struct {
		work    time.Duration
		waits   bool
		refused bool
		pause   time.Duration
	}
	beside.Cases(t, map[string]row{
		"alone":               {work: time.Second},
		"before another":      {work: 20 * time.Millisecond, waits: true, pause: 20 * time.Millisecond},
		"a moment":            {work: owed - 1, waits: true},
		"long":                {work: time.Minute, waits: true, pause: maxPause},
		"refused":             {work: 20 * time.Millisecond, refused: true, pause: 200 * time.Millisecond},
		"refused, others":     {work: 20 * time.Millisecond, waits: true, refused: true, pause: 200 * time.Millisecond},
		"refused at once":     {refused: true, pause: minPause},
		"refused after hours": {work: time.Hour, refused: true, pause: maxPause},
	}, func(t *testing.T, tt row) {
		synctest.Test(t, func(t *testing.T) {
			in := New(Options{Wait: 2 * time.Hour})
			first, second := turn{in: in, share: "a"}, turn{in: in, share: "a"}
			require.NoError(t, first.take(t.Context()))
			entered := make(chan time.Time, 1)
			next := func() { _ = second.take(t.Context()); entered <- time.Now() }
			if tt.waits {
				go next()
			}
			<-time.After(tt.work)
			synctest.Wait()
			left := time.Now()
			first.give(tt.refused)
			first.give(tt.refused) // twice is once
			if !tt.waits {
				next()
			}
			require.Equal(t, tt.pause, (<-entered).Sub(left))
			first.end()
			second.end()
			require.Empty(t, in.pace.of)
		})
	})
}

// Whoever waits too long, or hangs up, leaves nothing behind.
func TestPaceGivesUp(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var p pace
		p.join("a")
		require.NoError(t, p.enter(t.Context(), "a", time.Second))
		require.Equal(t, 10*time.Second, took(func() {
			require.ErrorIs(t, p.enter(t.Context(), "a", 10*time.Second), ErrBusy)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, p.enter(ctx, "a", time.Hour), context.Canceled)
		for range maxTurns {
			go func() { _ = p.enter(t.Context(), "a", time.Minute) }()
		}
		synctest.Wait()
		require.Zero(t, took(func() { require.ErrorIs(t, p.enter(t.Context(), "a", time.Hour), ErrBusy) }), "waiters are bounded")
		<-time.After(2 * time.Minute)
		synctest.Wait()
		p.leave("a", time.Second, 0)
		p.part("a")
		require.Empty(t, p.of)
	})
}

// The bytes of a sender's bodies count as work when there are several, even if
// nothing is done with them. One alone is taken in as fast as it comes.
func TestPaceOfBytes(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 16*mib)
	synctest.Test(t, func(t *testing.T) {
		in := New(Options{Dir: t.TempDir()})
		discard := func() time.Duration {
			return took(func() { in.Discard(request(strings.NewReader(large), ""), "a", 64*mib) })
		}
		require.Zero(t, discard())
		other, err := in.Receive(request(strings.NewReader(large), ""), "a", anything)
		require.NoError(t, err)
		require.GreaterOrEqual(t, discard(), time.Duration(len(large)-mib)*time.Second/copyRate)
		other.Close()
		<-time.After(maxPause)
		require.Zero(t, discard())
		require.Empty(t, in.pace.of)
	})
}

// Whoever works on a large body for long rests as long, also if nobody else
// waits, and is not held to have worked meanwhile. A small body is left alone.
func TestRests(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		in := New(Options{Dir: t.TempDir()})
		loaded := func(size int) *Body {
			b, err := in.Receive(request(strings.NewReader(strings.Repeat("x", size)), ""), "a", anything)
			require.NoError(t, err)
			_, err = b.Load(t.Context())
			require.NoError(t, err)
			return b
		}
		work := func(b *Body, worked time.Duration) (rested time.Duration) {
			<-time.After(worked)
			return took(b.Rest)
		}
		small := loaded(unpaced)
		defer small.Close()
		require.Zero(t, work(small, time.Second))
		large := loaded(3 * mib)
		require.Zero(t, work(large, stint-1))
		require.Equal(t, restRatio*20*time.Millisecond, work(large, 20*time.Millisecond-(stint-1)))
		require.Zero(t, took(large.Rest))
		require.Equal(t, maxPause, work(large, time.Hour))

		next := turn{in: in, share: "a"}
		entered := make(chan time.Time, 1)
		go func() { _ = next.take(t.Context()); entered <- time.Now() }()
		synctest.Wait()
		large.turn.stints = 20 * time.Millisecond // the hour was for the rest alone
		begin := time.Now()
		large.Close()
		require.Equal(t, 20*time.Millisecond, (<-entered).Sub(begin), "the pause is for the work, not for the rests")
		next.end()
	})
}
