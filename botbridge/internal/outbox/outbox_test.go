package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// fake is a platform that notes what it is told and when.
type fake struct {
	limits platform.Limits
	mu     sync.Mutex
	said   []string
	at     []time.Time
	fail   func(n int) error // by the number of the call, from 1
	calls  int
}

func (f *fake) Name() string                                        { return "fake" }
func (f *fake) Listen(context.Context, platform.Admit) error        { return nil }
func (f *fake) Routes(platform.Admit) map[string]http.Handler       { return nil }
func (f *fake) Answer(_ context.Context, _, text string) error      { return f.note("answer " + text) }
func (f *fake) Limits() platform.Limits                             { return f.limits }
func (f *fake) Delete(context.Context, platform.Chat, string) error { return nil }
func (f *fake) Open(context.Context, platform.File) (io.ReadCloser, error) {
	return nil, platform.ErrGone
}

func (f *fake) note(text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.at = append(f.at, time.Now())
	if f.fail != nil {
		if err := f.fail(f.calls); err != nil {
			return err
		}
	}
	f.said = append(f.said, text)
	return nil
}

// heard is what was said so far.
func (f *fake) heard() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.said)
}

func (f *fake) Send(_ context.Context, _ platform.Chat, p platform.Post) ([]string, error) {
	return []string{"1"}, f.note(p.Text)
}

func (f *fake) Edit(_ context.Context, _ platform.Chat, message string, p platform.Post) error {
	return f.note("edit " + message + " " + p.Text)
}

var home = platform.Chat{ID: "7"}

func TestOrderAndPaceOfAChat(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		f := &fake{limits: platform.Limits{ChatEvery: time.Second, PerSecond: 30}}
		b := New(Options{})
		var wg sync.WaitGroup
		for n := range 5 {
			wg.Go(func() { must.Get(b.Send(t.Context(), f, home, platform.Post{Text: fmt.Sprint(n)}))(t) })
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, f.said)
		for n := 1; n < 5; n++ {
			require.GreaterOrEqual(t, f.at[n].Sub(f.at[n-1]), time.Second)
		}
		b.Close()
	})
}

func TestAllChatsTogether(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		f := &fake{limits: platform.Limits{ChatEvery: time.Second, PerSecond: 30}}
		b := New(Options{})
		begin := time.Now()
		var wg sync.WaitGroup
		for n := range 300 {
			wg.Go(func() {
				must.Get(b.Send(t.Context(), f, platform.Chat{ID: fmt.Sprint(n)}, platform.Post{Text: "x"}))(t)
			})
		}
		wg.Wait()
		require.GreaterOrEqual(t, time.Since(begin), 9*time.Second)
		require.Less(t, time.Since(begin), 12*time.Second)
		b.Close()
	})
}

// Somebody waits for the answer to a button.
func TestAnswersDoNotWaitBehindMessages(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		f := &fake{limits: platform.Limits{PerSecond: 30}}
		b := New(Options{})
		var wg sync.WaitGroup
		for n := range 300 {
			wg.Go(func() {
				must.Get(b.Send(t.Context(), f, platform.Chat{ID: fmt.Sprint(n)}, platform.Post{Text: "x"}))(t)
			})
		}
		synctest.Wait()
		b.Answer(t.Context(), f, "press", "here")
		require.Contains(t, f.heard(), "answer here")
		require.Less(t, len(f.heard()), 10)
		wg.Wait()
		b.Close()
	})
}

func TestGroupsInEveryMinute(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		f := &fake{limits: platform.Limits{ChatEvery: time.Second, GroupPerMinute: 20}}
		b := New(Options{})
		group := platform.Chat{ID: "-1", Group: true}
		for range 60 {
			must.Get(b.Send(t.Context(), f, group, platform.Post{Text: "x"}))(t)
		}
		for i := range f.at {
			within := 0
			for _, later := range f.at[i:] {
				if later.Sub(f.at[i]) < time.Minute {
					within++
				}
			}
			require.LessOrEqual(t, within, 20)
		}
		b.Close()
	})
}

func TestProgressIsCoalescedAndGivesWay(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		f := &fake{limits: platform.Limits{ChatEvery: time.Second, EditEvery: 2 * time.Second}}
		b := New(Options{})
		for n := range 100 {
			b.Show(f, home, "m", platform.Post{Text: fmt.Sprint(n)})
			time.Sleep(100 * time.Millisecond)
		}
		require.LessOrEqual(t, len(f.heard()), 5)
		require.NotEmpty(t, f.heard())
		b.Show(f, home, "m", platform.Post{Text: "stale"})
		require.NoError(t, b.Edit(t.Context(), f, home, "m", platform.Post{Text: "end"}))
		time.Sleep(time.Minute)
		said := f.heard()
		require.Equal(t, "edit m end", said[len(said)-1], "nothing of progress comes after the end")
		require.Zero(t, b.Waiting())
		b.Close()
	})
}

func TestRetries(t *testing.T) {
	uncertain := fmt.Errorf("%w: cut", platform.ErrUncertain)
	type row struct {
		once  bool
		fail  error
		tries int
		err   error
		marks []bool
	}
	beside.Cases(t, map[string]row{
		"flood":                    {true, &platform.WaitError{After: 7 * time.Second}, 2, nil, []bool{true, false, true}},
		"a line that breaks":       {true, errors.New("connection refused"), 2, nil, []bool{true, false, true}},
		"words in doubt":           {false, uncertain, 2, nil, nil},
		"a picture in doubt":       {true, uncertain, 1, platform.ErrUncertain, []bool{true}},
		"refused":                  {false, platform.ErrRefused, 1, platform.ErrRefused, nil},
		"blocked":                  {false, platform.ErrForbidden, 1, platform.ErrForbidden, nil},
		"a file that is not there": {true, platform.ErrSource, 1, platform.ErrSource, []bool{true, false}},
	}, func(t *testing.T, c row) {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{fail: func(n int) error {
				if n == 1 {
					return c.fail
				}
				return nil
			}}
			b := New(Options{})
			var marks []bool
			var err error
			if c.once {
				_, err = b.SendOnce(t.Context(), f, home, platform.Post{Text: "x"}, Once{Mark: func(_ context.Context, sending bool, _ string) error {
					marks = append(marks, sending)
					return nil
				}})
			} else {
				_, err = b.Send(t.Context(), f, home, platform.Post{Text: "x"})
			}
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.tries, f.calls)
			require.Equal(t, c.marks, marks)
			if wait := (*platform.WaitError)(nil); errors.As(c.fail, &wait) {
				require.GreaterOrEqual(t, f.at[1].Sub(f.at[0]), wait.After)
			}
			b.Close()
		})
	})
}

func TestEndings(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		f := &fake{fail: func(int) error { return errors.New("away") }}
		b := New(Options{Backlog: 2})
		var wg sync.WaitGroup
		results := make(chan error, 8)
		gone, cancel := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{t.Context(), gone} {
			wg.Go(func() {
				_, err := b.Send(ctx, f, home, platform.Post{Text: "x"})
				results <- err
			})
			synctest.Wait()
		}
		_, err := b.Send(t.Context(), f, home, platform.Post{Text: "too much"})
		require.ErrorIs(t, err, ErrFull)
		cancel()
		b.Close()
		wg.Wait()
		for range 2 {
			require.ErrorIs(t, <-results, ErrNotSent)
		}
		_, err = b.Send(t.Context(), f, home, platform.Post{Text: "late"})
		require.ErrorIs(t, err, ErrNotSent)
	})
}

// A chat with a new id is told of, and nothing is done to a message there that may be
// another.
func TestMovedChat(t *testing.T) {
	t.Parallel()
	f := &fake{fail: func(int) error { return &platform.MovedError{To: "-100"} }}
	var told []string
	b := New(Options{Moved: func(name, from, to string) { told = append(told, name+" "+from+" "+to) }})
	_, err := b.Send(t.Context(), f, home, platform.Post{Text: "x"})
	require.ErrorAs(t, err, new(*platform.MovedError))
	require.False(t, platform.Permanent(err))
	var marks []bool
	_, err = b.SendOnce(t.Context(), f, home, platform.Post{Text: "x"}, Once{Mark: func(_ context.Context, sending bool, _ string) error {
		marks = append(marks, sending)
		return nil
	}})
	require.ErrorAs(t, err, new(*platform.MovedError))
	require.Equal(t, []bool{true, false}, marks, "it certainly was not sent")
	require.ErrorIs(t, b.Edit(t.Context(), f, home, "1", platform.Post{Text: "x"}), platform.ErrGone)
	b.Close()
	require.Equal(t, []string{"fake 7 -100", "fake 7 -100", "fake 7 -100"}, told)
	require.Equal(t, 3, f.calls, "none is repeated")
}

// worker is a platform that shows work for 5 s.
type worker struct {
	fake

	err error
}

func (w *worker) WorkLasts() time.Duration { return 5 * time.Second }

func (w *worker) Work(_ context.Context, to platform.Chat, makes platform.Media) error {
	_ = w.note("work " + to.ID + " " + string(makes))
	return w.err
}

func TestWork(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		w := &worker{fake: fake{limits: platform.Limits{PerSecond: 10, ChatEvery: time.Second}}}
		b := New(Options{})
		for range 12 { // a minute
			for range 10 {
				b.Work(w, home, platform.Photo)
				time.Sleep(time.Second / 2)
			}
		}
		require.Len(t, w.heard(), 12, "once while it is shown")

		// What is said comes first, and waits for nothing.
		begin := time.Now()
		for range 3 {
			go func() { _, _ = b.Send(t.Context(), w, home, platform.Post{Text: "said"}) }()
		}
		synctest.Wait()
		b.Work(w, home, platform.Photo)
		time.Sleep(3 * time.Second)
		require.Len(t, slices.DeleteFunc(w.heard(), func(s string) bool { return s != "said" }), 3)
		require.Len(t, w.heard(), 12+3)
		require.Less(t, w.at[len(w.at)-1].Sub(begin), 2500*time.Millisecond)

		// Many chats share a tenth of the rate.
		before := len(w.heard())
		for range 10 {
			for _, chat := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				b.Work(w, platform.Chat{ID: chat}, "")
			}
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, len(w.heard())-before, 11)

		// A chat that does not take it is left alone.
		synctest.Wait()
		w.err = platform.ErrForbidden
		before = len(w.heard())
		for range 60 {
			b.Work(w, platform.Chat{ID: "gone"}, "")
			time.Sleep(6 * time.Second)
		}
		require.Len(t, w.heard(), before+1)
		b.Work(&w.fake, home, "") // a platform that cannot show it
		b.Close()
		b.Work(w, home, "")
		require.Len(t, w.heard(), before+1)
	})
}
