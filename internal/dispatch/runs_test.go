package dispatch

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// sees opens the socket of the client that owns all jobs. The returned function sees the messages
// of one prompt, and all binary ones, up to the prompt's end.
func (b *dispatching) sees() (until func(id string, see func(m comfyui.Message, binary []byte))) {
	web := loopback.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = b.Streams.Sockets.Serve(w, r, stream.Ident{Requester: job.Requester{Tenant: job.DefaultTenant, Client: "client", Caller: "caller"}})
	}))
	conn, _, err := websocket.Dial(b.t.Context(), web.URL, nil)
	require.NoError(b.t, err)
	conn.SetReadLimit(-1)
	b.t.Cleanup(func() { conn.CloseNow(); web.CloseClientConnections(); web.Close() })
	return func(id string, see func(m comfyui.Message, binary []byte)) {
		ctx, cancel := context.WithTimeout(b.t.Context(), deadline)
		defer cancel()
		for {
			kind, frame, err := conn.Read(ctx)
			require.NoError(b.t, err)
			if kind == websocket.MessageBinary {
				see(comfyui.Message{}, frame)
			} else if m, ok := comfyui.ParseMessage(frame); ok && m.PromptID == id {
				if m.Ends() {
					return
				}
				see(m, nil)
			}
		}
	}
}

// listen is sees for the types of the messages, without statuses, progress and nodes.
func (b *dispatching) listen() (until func(id string) []string) {
	sees := b.sees()
	return func(id string) (types []string) {
		sees(id, func(m comfyui.Message, _ []byte) {
			if strings.HasPrefix(m.Type, "execut") && m.Type != comfyui.TypeExecuting && m.Type != comfyui.TypeExecutionCached {
				types = append(types, m.Type)
			}
		})
		return types
	}
}

// atDoor makes a job's client wait for the answer to its POST.
func atDoor(s *queue.Submission) { s.Door = time.Hour }

// If no other instance can run the prompt, the client sees the refusal as a failed run, or as the
// answer to its POST if it is still waiting for that.
func TestRefusalOfTheOnlyInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.instances[0].on("POST /prompt", refuse)
		until := b.listen()
		key := b.submit(picture)
		require.Equal(t, []string{"execution_start", "execution_error"}, until(key))
		require.Contains(t, b.failure(key), "Custom validation failed for node")
		key = b.submit(picture, atDoor)
		eventually(t, func() bool { return len(b.ends()) == 2 }, deadline, 10*time.Millisecond)
		require.Equal(t, []string{"failed", "rejected"}, b.ends())
		answer, refused, err := b.Queue.Admit(t.Context(), key)
		require.NoError(t, err)
		require.True(t, refused)
		require.True(t, json.Valid(answer))
		b.leaves(key)
	})
}

func TestAnotherInstanceTakesWhatOneRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 2)
		eventually(t, func() bool { return len(b.Instances.Open()) == 2 }, deadline, 10*time.Millisecond)
		for _, i := range b.instances {
			i.on("POST /prompt", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				for _, other := range b.instances {
					other.on("POST /prompt", nil) // only the first instance asked refuses
				}
				refuse(w, r, next)
			})
		}
		j := b.reaches(b.submit(picture), job.Done)
		require.Len(t, j.Lost, 1)
		require.Contains(t, j.Lost[0], "the instance refused it")
		require.Equal(t, 1, j.Attempts, "a refusal is no attempt")
	})
}

// A POST that got no answer may have been accepted all the same.
func TestUnclearPost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, queued := range []bool{true, false} {
			b := newDispatching(t, 1)
			var posts atomic.Int32
			b.instances[0].on("POST /prompt", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if posts.Add(1) > 1 {
					next.ServeHTTP(w, r)
					return
				}
				if queued {
					next.ServeHTTP(httptest.NewRecorder(), r)
				}
				w.WriteHeader(http.StatusInternalServerError)
			})
			key := b.submit(picture)
			if queued {
				require.Empty(t, b.reaches(key, job.Done).Lost)
				require.Equal(t, 1, b.instances[0].Started(), "it ran once")
				continue
			}
			// The hub tries that instance again after a while: there is no other.
			j := b.reaches(key, job.Done)
			require.Len(t, j.Lost, 1)
			require.Contains(t, j.Lost[0], "did not take it")
			require.Equal(t, 2, j.Attempts, "nobody knows that it did not run")
		}
	})
}

// Cancels end a run in each phase. The cases show what the client sees.
func TestCancelledRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		withdraw bool
		during   string // POST /prompt, or "" while it executes
	}{{"while it executes", false, ""}, {"while it is posted", false, "POST /prompt"}, {"withdrawn", true, ""}} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := newDispatching(t, 1)
				end := b.Queue.Cancel
				if c.withdraw {
					end = func(ctx context.Context, key string) (queue.CancelResult, error) {
						return b.Queue.Withdraw(ctx, key, false)
					}
				}
				var key string
				posting, ended := make(chan struct{}), make(chan struct{})
				if c.during != "" {
					b.instances[0].on(c.during, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
						close(posting)
						<-ended
						next.ServeHTTP(w, r)
					})
				}
				key = b.submit(endless)
				if c.during == "" {
					b.runs(key)
				} else {
					<-posting
				}
				must(end(t.Context(), key))
				close(ended)
				b.leaves(key)
				if c.withdraw {
					_, err := b.Queue.HistoryEntry(t.Context(), job.DefaultTenant, key)
					require.ErrorIs(t, err, queue.ErrNotFound)
					require.Empty(t, b.ends())
					return
				}
				require.Equal(t, []string{"cancelled"}, b.ends())
				require.Equal(t, comfyui.TypeExecutionInterrupted, b.entry(key).End)
			})
		})
	}
}

// A run that exceeds the job timeout fails. It does not count as cancelled by its client.
func TestOvertime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.set(func(s *Settings) { s.JobTimeout = 50 * time.Millisecond })
		require.Contains(t, b.failure(b.submit(endless)), "job_timeout")
	})
}

// An instance that accepts prompts but does not start them is given up.
func TestSickInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.set(func(s *Settings) { s.StallTimeout = 10 * time.Millisecond })
		b.instances[0].Silence()
		require.Contains(t, b.lost(b.submit(picture)), "does not start them")
		i, _ := b.fleet.Instance(b.instances[0].name)
		require.Equal(t, fleet.Sick, i.State)
	})
}

// A prompt waiting at its instance behind a foreign one moves to another instance.
func TestPromptOfSomebodyElse(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		resp := must(http.Post(b.instances[0].web.URL+"/prompt", "application/json", strings.NewReader(`{"client_id": "somebody", "prompt": `+endless+`}`)))
		require.NoError(t, resp.Body.Close())
		key := b.submit(picture)
		require.Contains(t, b.lost(key), "behind a prompt of somebody else")
		require.LessOrEqual(t, b.Job(key).Attempts, 1, "an excused run is no attempt; it may have the next one already")
	})
}

// A process that dies while it executes a prompt counts against the prompt.
func TestInstanceDies(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, queue.MaxKills)
		key := b.submit(endless)
		for kills := range queue.MaxKills {
			var j job.Job
			eventually(t, func() bool {
				j = b.Job(key)
				return j.State == job.Running && j.Kills == kills
			}, deadline, 10*time.Millisecond)
			for _, i := range b.instances {
				if i.name == j.Run.Instance {
					require.NoError(t, i.web.Listener.Close())
					i.Kill()
				}
			}
		}
		require.Contains(t, b.failure(key), "quarantined")
	})
}

// If the instance has lost its record, one is made from the run's messages, unless some of them
// were missed.
func TestRecordIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.instances[0].on("GET /history/", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusInternalServerError)
		})
		key := b.submit(picture)
		b.reaches(key, job.Done)
		require.Contains(t, string(b.entry(key).Outputs), "ComfyUI_00001_.png")
		key = b.submit(working)
		b.runs(key)
		r := b.Runs.Get(key)
		r.Holder().Tell(instance.Event{Kind: instance.Down, Err: io.EOF})
		<-time.After(time.Minute) // that is how long it is asked for
		require.Contains(t, b.lost(key), "record of the run cannot be read")
	})
}

// monitors makes an instance's connection receive the figures that a custom node sends to every
// socket, whatever the instance is doing.
func (b *dispatching) monitors() {
	conn := b.Instances.Get(b.instances[0].name)
	done, ended := b.t.Context().Done(), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			conn.Hear(comfyui.Frame{Data: []byte(`{"type": "crystools.monitor", "data": {"cpu_utilization": 1}}`)})
			select {
			case <-tick.C:
			case <-done:
				tick.Stop()
				return
			}
		}
	}()
	b.t.Cleanup(func() { <-ended })
}

// The end of a run is noticed even if none of its messages arrives while others do, whatever they
// are: figures of the machine, or renewals that repeat a cancel.
func TestEndIsNoticedBesideOtherMessages(t *testing.T) {
	inBubbles(t, map[string]bool{"monitors": false, "a cancel that is repeated": true}, func(t *testing.T, cancelled bool) {
		b := newDispatching(t, 1, func(b *dispatching, _ *Config) { b.settings.Lease = 300 * time.Millisecond })
		b.connects(1)
		key := b.submit(map[bool]string{false: working, true: endless}[cancelled])
		b.runs(key)
		b.set(func(s *Settings) { s.StallTimeout = 5 * time.Second })
		b.instances[0].SetFault(sim.Faults{Mute: true})
		if !cancelled {
			b.monitors()
			b.Runs.Get(key).Holder().Tell(instance.Event{Kind: instance.Down, Err: io.EOF}) // messages were missed
			b.reaches(key, job.Done)
			return
		}
		must(b.Queue.Cancel(t.Context(), key))
		b.leaves(key)
		require.Equal(t, []string{"cancelled"}, b.ends())
	})
}

// A run that hangs is interrupted even though the instance keeps sending what it always sends.
func TestHungRunBesideMonitors(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.connects(1)
		b.monitors()
		conn := b.Instances.Get(b.instances[0].name)
		eventually(t, func() bool {
			return conn.Background.Has(comfyui.Message{Type: "crystools.monitor"})
		}, deadline, time.Millisecond)
		key := b.submit(endless)
		b.runs(key)
		b.instances[0].SetFault(sim.Faults{Mute: true})
		b.instances[0].on("POST /interrupt", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			b.set(func(s *Settings) { s.StallTimeout = time.Minute }) // it may take its time to stop
			next.ServeHTTP(w, r)
		})
		b.set(func(s *Settings) { s.StallTimeout = 100 * time.Millisecond })
		require.Contains(t, b.lost(key), "silent for too long")
	})
}

// cancels ends a run as its client does, and waits for the end of the job.
func (b *dispatching) cancels(key string) {
	b.Runs.Cancel(key)
	b.reaches(key, job.Cancelled)
}
