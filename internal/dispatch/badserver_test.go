package dispatch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// bad are ways in which an instance gets no prompt done, although it can be reached.
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

// brisk takes three seconds, too, with less to tell.
var brisk = strings.Replace(working, `"steps": 20`, `"steps": 3`, 1)

// different is a graph of which an instance has cached nothing.
func different(graph string, nonce int) string {
	return strings.Replace(graph, `"nonce": 1`, fmt.Sprintf(`"nonce": %d`, nonce), 1)
}

// many submits so many jobs and waits for their ends.
func (b *dispatching) many(graph string, count int) (jobs []job.Job) {
	b.t.Helper()
	var keys []string
	for n := range count {
		keys = append(keys, b.submit(different(graph, 1000+n)))
	}
	for _, key := range keys {
		eventually(b.t, func() bool { return b.job(key).State.Ended() }, 10*time.Minute, 100*time.Millisecond)
		jobs = append(jobs, b.job(key))
	}
	return jobs
}

// An instance that gets nothing done is always the one that is idle. It must not eat the
// queue while the other one works, and is set aside until it works again.
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
				for _, j := range b.many(brisk, 40) {
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
					require.LessOrEqual(t, failed, doubtAfter, "those that look like the fault of their graphs")
				} else {
					require.Zero(t, failed)
				}
				i, _ := b.fleet.Instance(broken.name)
				require.Equal(t, fleet.Sick, i.State)
				require.True(t, i.Aside)
				require.Regexp(t, `^set aside: its last \d+ runs came to nothing \(\d+ × .*\); meanwhile others finished \d+, \d+ of them`, i.Reason)
				well, _ := b.fleet.Instance(b.instances[1].name)
				require.Equal(t, fleet.Idle, well.State)
				require.Contains(t, b.logged(), "instance is set aside")

				// It works again: the next probe shows that, and it has its share of the work.
				broken.on("POST /prompt", nil)
				broken.SetFault(sim.Faults{})
				require.Len(t, b.many(strings.Replace(brisk, `"steps": 3`, `"steps": 4`, 1), 20), 20)
				i, _ = b.fleet.Instance(broken.name)
				require.False(t, i.Aside)
				require.Contains(t, b.logged(), "instance works again")
			})
		})
	}
}

// An instance that takes a prompt and does not have it has not been restarted, and is not
// said to have been.
func TestForgottenPrompt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		bad["forgets"](b.instances[0])
		message := b.failure(b.submit(picture))
		require.Equal(t, 3, strings.Count(message, "it was not restarted")/2, "in the message and in the traceback: %s", message)
		require.NotContains(t, message, "was restarted")
	})
}

// Two restarts of one server, which look like deaths, quarantine no prompt.
func TestTwoRestartsOfOneServer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		key := b.submit(working)
		for n := range 2 {
			eventually(t, func() bool {
				j := b.job(key)
				return j.State == job.Running && len(j.Lost) == n
			}, deadline, 10*time.Millisecond)
			b.instances[0].Restart()
		}
		j := b.reaches(key, job.Done)
		require.Equal(t, []int{1, 3}, []int{j.Kills, j.Attempts})
		require.Equal(t, []string{b.instances[0].name}, j.FailedAt)
	})
}
