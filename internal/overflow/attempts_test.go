package overflow

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/overflow/overflowtest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// attempter is a hub's slot at an endpoint, and the hub's client of it.
type attempter struct {
	*comfyui.Client

	t    *testing.T
	e    *Endpoint
	slot *Slot
}

// newAttempter opens a slot of a hub at a service of the contract.
func newAttempter(t *testing.T, db *redis.DB, fake *overflowtest.Endpoint) attempter {
	t.Helper()
	remote := must.Get(NewService("https://gpus.example.com", fake.Key, egress.Options{Transport: fake}))(t)
	e := New(Options{
		Name: "gpus", Remote: remote, Price: 0.001, IsOutput: func(class string) bool { return class == "SaveImage" }, Book: NewBook(db), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Tenant: func(context.Context, string) (string, error) { return "ann", nil },
	})
	slot := must.Get(e.Open(t.TempDir()))(t)
	client := must.Get(comfyui.NewClient("http://overflow", comfyui.Options{Dial: slot.Dial}))(t)
	t.Cleanup(func() {
		client.Close()
		slot.Close()
	})
	return attempter{client, t, e, slot}
}

// attempt posts the job as a hub does. The slot may give it back before it answers.
func (a attempter) attempt(fence int) (prompt string) {
	a.t.Helper()
	prompt = fmt.Sprintf("attempt-%d", fence)
	_, _ = a.Submit(a.t.Context(), fmt.Appendf(nil, `{"prompt": {"1": {"class_type": "SaveImage", "inputs": {"filename_prefix": "a"}}},
		"prompt_id": %q, "client_id": "hub", "extra_data": {"comfyhub": {"job": "j", "fence": %d}}}`, prompt, fence))
	return prompt
}

// end returns how a prompt has ended, once it has; empty for one that was given back.
func (a attempter) end(prompt string) string {
	a.t.Helper()
	for range 120 {
		raw, found, err := a.History(a.t.Context(), prompt)
		if err == nil && found {
			entry, _ := comfyui.ParseEntry(raw)
			return entry.End + " " + string(entry.EndData)
		}
		<-time.After(time.Second)
	}
	return ""
}

// Two hubs ask a service for the run of one job, since one took the other for dead. Whose answer comes
// late does not end the run of the one that has it.
func TestLateAnswerEndsNoRun(t *testing.T) {
	for name, late := range map[string]int{"the first hub's": 0, "the second hub's": 1} {
		t.Run(name, func(t *testing.T) {
			beside.Bubble(t, func(t *testing.T) {
				fake, calls := &overflowtest.Endpoint{Key: "k", Takes: 10 * time.Second}, atomic.Int32{}
				answered := []chan struct{}{make(chan struct{}), make(chan struct{})}
				fake.Hook = func(call string) overflowtest.Fault {
					if call == "POST /runs" {
						<-answered[calls.Add(1)-1]
					}
					return overflowtest.NoFault
				}
				db := redistest.Embedded(t)
				hubs := []attempter{newAttempter(t, db, fake), newAttempter(t, db, fake)}
				var prompts []string
				for n, hub := range hubs {
					prompts = append(prompts, hub.attempt(n+1))
					<-time.After(time.Second)
				}
				close(answered[1-late])
				<-time.After(time.Second)
				close(answered[late])
				require.Contains(t, hubs[1-late].end(prompts[1-late]), comfyui.TypeExecutionSuccess)
				require.Empty(t, hubs[late].end(prompts[late]), "it is given back")
				made, cancelled := fake.Runs()
				require.Equal(t, 1, made)
				require.Zero(t, cancelled)
			})
		})
	}
}

// A hub ends a run that it has no lease of any more, and does not hear that it has ended. Another hub
// gives the job back meanwhile, and does not tell its client of an end that nobody has asked for.
func TestRunThatIsBeingEndedGoesToNoOtherAttempt(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		fake, calls := &overflowtest.Endpoint{Key: "k", Takes: time.Minute}, atomic.Int32{}
		fake.Hook = func(call string) overflowtest.Fault {
			if call != "DELETE /runs" {
				return overflowtest.NoFault
			}
			if calls.Add(1) == 1 {
				return overflowtest.Lost
			}
			return overflowtest.Away
		}
		db := redistest.Embedded(t)
		one, two := newAttempter(t, db, fake), newAttempter(t, db, fake)
		first := one.attempt(1)
		<-time.After(5 * time.Second)
		require.NoError(t, one.Interrupt(t.Context(), first))
		<-time.After(time.Second)
		require.Empty(t, two.end(two.attempt(2)), "it is given back")
		require.NoError(t, two.e.o.Book.Refresh(t.Context()))
		_, barred := two.e.o.Book.Has("j")
		require.True(t, barred)
		require.EqualValues(t, 1, two.e.o.Book.records["j"].Fence, "nobody else looks after it")
	})
}

// A hub sees a job run elsewhere and ends its run at the endpoint, and the job comes back meanwhile: it
// is given back and goes to no endpoint again. Once it has ended, nothing of it is kept.
func TestSweptRunIsNotPaidForAgain(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		fake := &overflowtest.Endpoint{Key: "k", Takes: time.Minute}
		db := redistest.Embedded(t)
		one, two := newAttempter(t, db, fake), newAttempter(t, db, fake)
		one.attempt(1)
		<-time.After(5 * time.Second)
		sweep := func(f Fate) {
			require.NoError(t, two.e.o.Book.Refresh(t.Context()))
			require.NoError(t, two.e.Sweep(t.Context(), func(string) Fate { return f }))
		}
		sweep(Wanted)
		sweep(Elsewhere)
		require.Empty(t, two.end(two.attempt(2)), "it is given back")
		made, cancelled := fake.Runs()
		require.Equal(t, []int{1, 1}, []int{made, cancelled})
		sweep(Elsewhere)
		_, barred := two.e.o.Book.Has("j")
		require.True(t, barred)
		sweep(Ended)
		require.True(t, two.e.o.Book.Empty())
	})
}

// Somebody cancels a run at the endpoint: the job goes back to the fleet.
func TestRunIsCancelledAtTheEndpoint(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		fake := &overflowtest.Endpoint{Key: "k", Takes: time.Minute}
		a := newAttempter(t, redistest.Embedded(t), fake)
		prompt := a.attempt(1)
		<-time.After(5 * time.Second)
		require.NoError(t, a.e.o.Remote.Cancel(t.Context(), a.e.o.Book.records["j"].Remote))
		require.Empty(t, a.end(prompt), "it is given back")
		_, barred := a.e.o.Book.Has("j")
		require.True(t, barred)
	})
}

// A service begins a run whose answer is lost, and is then away or takes no runs for a while: it is asked
// for that run until it answers, and not for another.
func TestRunWhoseAnswerIsLostIsTheOnlyOne(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		fake, calls := &overflowtest.Endpoint{Key: "k", Takes: time.Minute}, atomic.Int32{}
		fake.Hook = func(call string) overflowtest.Fault {
			switch n := calls.Add(1); {
			case call != "POST /runs":
				return overflowtest.NoFault
			case n == 1:
				return overflowtest.Lost
			case n < 6:
				return overflowtest.Away
			}
			return overflowtest.NoFault
		}
		a := newAttempter(t, redistest.Embedded(t), fake)
		require.Contains(t, a.end(a.attempt(1)), comfyui.TypeExecutionSuccess)
		made, cancelled := fake.Runs()
		require.Equal(t, []int{1, 0}, []int{made, cancelled})
	})
}

// The hub that takes over a job whose run may have begun finds the service away: it does not begin
// another run either.
func TestRunThatMayHaveBegunIsTheOnlyOne(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		fake, second := &overflowtest.Endpoint{Key: "k", Takes: time.Minute}, atomic.Int32{}
		db := redistest.Embedded(t)
		one, two := newAttempter(t, db, fake), newAttempter(t, db, fake)
		fake.Hook = func(call string) overflowtest.Fault {
			if call == "POST /runs" && second.Load() == 0 {
				second.Store(1)
				return overflowtest.Lost
			}
			if call == "POST /runs" && second.Add(1) < 5 {
				return overflowtest.Away
			}
			return overflowtest.NoFault
		}
		one.attempt(1)
		<-time.After(500 * time.Millisecond) // it has asked once, and pauses
		one.slot.Close()
		require.Contains(t, two.end(two.attempt(2)), comfyui.TypeExecutionSuccess)
		made, cancelled := fake.Runs()
		require.Equal(t, []int{1, 0}, []int{made, cancelled})
	})
}

// A service never says whether a run has begun: the job goes back to the fleet after a while, what the run
// may cost is counted, and no endpoint gets the job again.
func TestServiceThatNeverSaysWhetherItRuns(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		fake := &overflowtest.Endpoint{Key: "k", Takes: time.Minute}
		fake.Hook = func(call string) overflowtest.Fault {
			if call == "POST /runs" {
				return overflowtest.Broken
			}
			return overflowtest.NoFault
		}
		a := newAttempter(t, redistest.Embedded(t), fake)
		prompt := a.attempt(1)
		<-time.After(askedFor + 10*time.Second)
		require.NoError(t, a.e.o.Book.Refresh(t.Context()))
		_, barred := a.e.o.Book.Has("j")
		require.True(t, barred, "it is nobody's again")
		require.Empty(t, a.end(prompt), "it is given back")
		a.e.count(t.Context())
		require.InDelta(t, float64(a.e.worst())/micros, a.e.purse.spent, 1e-9)
	})
}
