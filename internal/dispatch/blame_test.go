package dispatch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// failing is a graph that fails wherever it runs.
var failing = strings.Replace(brisk, `"fail": "none"`, `"fail": "error"`, 1)

// nobodyAside requires that no instance set aside.
func (b *dispatching) nobodyAside() {
	for _, i := range b.fleet.Instances() {
		require.False(b.t, i.Aside, "%s: %s", i.Name, i.Reason)
	}
	require.NotContains(b.t, b.logged(), "set aside")
}

// like gives a job the given structure.
func like(structure string) func(*queue.Submission) {
	return func(s *queue.Submission) { s.Shape = structure + ":image:1" }
}

// The error of a graph that fails everywhere is told at once, and no instance is blamed for it,
// however many there are and whatever else is running.
func TestBadGraphsAmongGoodOnes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 2)
		b.connects(2)
		var good, broken []string
		for n := range 24 {
			if n%2 == 0 {
				good = append(good, b.submit(different(brisk, n), like("good")))
			} else {
				broken = append(broken, b.submit(different(failing, n), like("broken")))
			}
		}
		for _, key := range good {
			eventually(t, func() bool { return b.Job(key).State == job.Done }, 10*time.Minute, 100*time.Millisecond)
		}
		again := 0
		for _, key := range broken {
			require.Equal(t, job.Failed, b.Job(key).State)
			require.Contains(t, b.failure(key), "SimulatedWork", "it is ComfyUI's own error")
			again += len(b.Job(key).Lost)
		}
		require.LessOrEqual(t, again, 1, "one is tried at a second instance, and from then on such graphs are known")
		b.nobodyAside()
	})
}

// Many bad graphs in a row, on both instances and with nothing else to do, fail as fast as on one
// ComfyUI: no instance rests.
func TestBadGraphsOnly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, count := range []int{1, 2} {
			b := newDispatching(t, count)
			b.connects(count)
			began := time.Now()
			for n, j := range b.many(failing, 20) {
				require.Equal(t, job.Failed, j.State)
				require.Empty(t, j.Lost, n)
			}
			// Each takes half of its three seconds. The instances rest at most once.
			require.Less(t, time.Since(began), 20*4*time.Second/time.Duration(count)+2*time.Second)
			b.nobodyAside()
		}
	})
}

// An instance that is the only one, or the only one that can run a job, gets jobs however they end,
// and its errors are told: as with one ComfyUI.
func TestOnlyServerIsNotSetAside(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.instances[0].SetFault(sim.Faults{FailEvery: 1})
		for _, j := range b.many(brisk, 10) {
			require.Equal(t, job.Failed, j.State)
			require.Empty(t, j.Lost)
		}
		b.nobodyAside()
		require.Equal(t, 10, b.instances[0].Started())

		// With a working one beside it, it is set aside, and it is back when that one goes.
		b.add(newScripted(t))
		b.connects(2)
		b.many(brisk, 20)
		broken, other := b.instances[0].name, b.instances[1]
		i, _ := b.fleet.Instance(broken)
		require.True(t, i.Aside)
		b.fleet.SetDraining(other.name, true)
		began := b.instances[0].Started()
		for _, j := range b.many(endless, 10) {
			require.Equal(t, job.Failed, j.State)
		}
		require.Equal(t, began+10, b.instances[0].Started())

		// An operator may declare it healthy.
		b.fleet.SetDraining(other.name, false)
		b.Blame.Trust(broken)
		i, _ = b.fleet.Instance(broken)
		require.Equal(t, fleet.Idle, i.State)
		require.False(t, b.Blame.Doubts(broken))
	})
}

// While an instance rests, it still gets jobs that no other one can run.
func TestRestingInstanceRunsWhatOnlyItCan(t *testing.T) {
	t.Parallel()
	all, few := described("A", "B"), described("A")
	a, b := catalog.Requirements{Classes: []string{"A"}}, catalog.Requirements{Classes: []string{"B"}}
	classes := map[string][]byte{a.Signature(): a.Encode(), b.Signature(): b.Encode()}
	others := []*catalog.Info{few}
	js := judgements{standIns: func(string) []*catalog.Info { return others }}
	idle := []schedule.Idle{{Name: "resting", Rests: true}}
	wanted := js.able(idle, []*catalog.Info{all}, classes)
	require.Equal(t, []string{a.Signature()}, wanted.But)
	require.Equal(t, map[string]bool{b.Signature(): true}, idle[0].Classes)
	idle = append(idle, schedule.Idle{Name: "well"})
	others = append(others, all)
	wanted = js.able(idle, []*catalog.Info{all, all}, classes)
	require.Empty(t, wanted.But)
	require.Empty(t, idle[0].Classes)
	require.Len(t, idle[1].Classes, 2)
}

// bad are the ways in which an instance gets no prompt done although it can be reached.
var bad = map[string]func(i *scripted){
	"fails":       func(i *scripted) { i.SetFault(sim.Faults{FailEvery: 1}) },
	"answers 500": func(i *scripted) { i.SetFault(sim.Faults{RefusePrompt: true}) },
	"forgets": func(i *scripted) {
		i.on("POST /prompt", func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			var body struct {
				ID string `json:"prompt_id"`
			}
			_ = json.NewDecoder(r.Body).Decode(&body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"prompt_id": %q, "number": 1, "node_errors": {}}`, body.ID)
		})
	},
	"dies": func(i *scripted) {
		i.on("POST /prompt", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			i.SetFault(sim.Faults{DieAfterStep: 1})
			next.ServeHTTP(w, r)
		})
	},
}

// brisk also takes three seconds, with less to report.
var brisk = strings.Replace(working, `"steps": 20`, `"steps": 3`, 1)

// different returns a graph of which an instance has nothing cached.
func different(graph string, nonce int) string {
	return strings.Replace(graph, `"nonce": 1`, fmt.Sprintf(`"nonce": %d`, nonce), 1)
}

// many submits count jobs and waits for their ends.
func (b *dispatching) many(graph string, count int) (jobs []job.Job) {
	var keys []string
	for n := range count {
		keys = append(keys, b.submit(different(graph, 1000+n)))
	}
	for _, key := range keys {
		eventually(b.t, func() bool { return b.Job(key).State.Ended() }, 10*time.Minute, 100*time.Millisecond)
		jobs = append(jobs, b.Job(key))
	}
	return jobs
}

// An instance that gets nothing done is always the idle one. It must not eat up the queue while the
// other one works, and is set aside until it works again.
func TestBadServer(t *testing.T) {
	t.Parallel()
	for name, spoil := range bad {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := newDispatching(t, 2)
				b.connects(2)
				broken := b.instances[0]
				spoil(broken)
				failed := 0
				for _, j := range b.many(brisk, 16) {
					if j.State == job.Failed {
						failed++
						require.Empty(t, j.Lost, "its error was told at once")
						continue
					}
					require.Equal(t, job.Done, j.State, "%v", j.Lost)
					require.LessOrEqual(t, len(j.Lost), 1, "it does not go there again")
				}
				t.Logf("%d prompts failed, and the broken instance began %d", failed, broken.Started())
				if name == "fails" {
					require.LessOrEqual(t, failed, 3, "those that look like the fault of their graphs")
				} else {
					require.Zero(t, failed)
				}
				i, _ := b.fleet.Instance(broken.name)
				require.Equal(t, fleet.Sick, i.State)
				require.True(t, i.Aside)
				require.Regexp(t, `^set aside: its last \d+ runs came to nothing \(\d+ × .*\); meanwhile others finished \d+, \d+ of them`, i.Reason)
				well, _ := b.fleet.Instance(b.instances[1].name)
				require.Equal(t, fleet.Idle, well.State)
				require.Contains(t, b.logged(), "instance set aside")

				// It works again: the next probe shows that, and it gets its share of the work.
				broken.on("POST /prompt", nil)
				broken.SetFault(sim.Faults{})
				require.Len(t, b.many(strings.Replace(brisk, `"steps": 3`, `"steps": 4`, 1), 14), 14)
				i, _ = b.fleet.Instance(broken.name)
				require.False(t, i.Aside)
				require.Contains(t, b.logged(), "instance works again")
			})
		})
	}
}

// An instance that takes a prompt and then does not have it was not restarted, and is not reported
// as restarted.
func TestForgottenPrompt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		bad["forgets"](b.instances[0])
		message := b.failure(b.submit(picture))
		require.Equal(t, 3, strings.Count(message, "it was not restarted")/2, "in the message and in the traceback: %s", message)
		require.NotContains(t, message, "was restarted")
	})
}

// Two restarts of one server that look like deaths do not quarantine a prompt.
func TestTwoRestartsOfOneServer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		key := b.submit(working)
		for n := range 2 {
			eventually(t, func() bool {
				j := b.Job(key)
				return j.State == job.Running && len(j.Lost) == n
			}, deadline, 10*time.Millisecond)
			b.instances[0].Restart()
		}
		j := b.reaches(key, job.Done)
		require.Equal(t, []int{1, 3}, []int{j.Kills, j.Attempts})
		require.Equal(t, []string{b.instances[0].name}, j.FailedAt)
		require.Contains(t, j.Lost[0], "and was restarted")
	})
}
