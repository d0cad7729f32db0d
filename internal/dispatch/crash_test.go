package dispatch

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// A panic in a run ends that run's job with an error. The hub goes on, and the
// instance is free for the next job.
func TestPanicEndsOneRun(t *testing.T) {
	inBubbles(t, map[string]func(*dispatching, *Config){
		"before the prompt is posted": func(_ *dispatching, c *Config) { c.Files = files.NewTransfer(&files.Store{}, nil, nil, nil) },
		"while it executes":           func(_ *dispatching, c *Config) { c.Shown = func(string, string, []byte) { panic("broken") } },
		"while an output is copied": func(b *dispatching, _ *Config) {
			b.fetch = func(context.Context, files.Source, http.Header) (*http.Response, error) { panic("broken") }
		},
	}, func(t *testing.T, broken func(*dispatching, *Config)) {
		b := newDispatching(t, 1, broken)
		for range 2 {
			key := b.submit(picture, func(s *queue.Submission) { s.Body.Inputs = []byte(`{"v": 1, "held": ["a"]}`) })
			require.Contains(t, b.failure(key), "The hub failed")
			b.leaves(key)
		}
		require.Contains(t, b.logged(), "panics.Do", "the log has the stack")
		require.Equal(t, []string{"failed", "failed"}, b.ends())
	})
}

// If a reader of an instance's messages panics, the run on its socket ends.
func TestPanicOfAReader(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 1)
	key := b.submit(endless)
	b.runs(key)
	b.Instances.Get(b.instances[0].name).Deliver(instance.Event{Kind: instance.Down, Err: panics.ErrPanic})
	require.Contains(t, b.failure(key), "The hub failed")
}

// hanging is a connection to Redis on which the commands of some callers never return.
type hanging struct {
	// of is the function whose commands hang; nil for none.
	of atomic.Pointer[string]
	// hung counts them.
	hung atomic.Int32
}

func (h *hanging) wait(ctx context.Context) error {
	of := h.of.Load()
	if of == nil {
		return nil
	}
	if !calledBy(*of) {
		return nil
	}
	h.hung.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

// calledBy reports whether a function, given by the end of its name, is among the callers.
func calledBy(function string) bool {
	var stack [64]uintptr
	frames := runtime.CallersFrames(stack[:runtime.Callers(1, stack[:])])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, function) {
			return true
		}
		if !more {
			return false
		}
	}
}

func (h *hanging) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *hanging) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if err := h.wait(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (h *hanging) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if err := h.wait(ctx); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// Leases are renewed and the hub's beats go on while Redis does not answer the code that looks
// after other runs.
func TestLeasesOutliveSlowWork(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"Leases).Heal", "Leases).sweep", "Heartbeat).Inherit"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			var h hanging
			b := newDispatchingOn(t, redistest.Start(t).URL(), &h, 1, func(b *dispatching, c *Config) {
				b.settings.Lease = 300 * time.Millisecond // a third of this between two renewals; the queue's lasts 15 s
				c.Gone = func(context.Context, string) bool { return true }
			})
			key := b.submit(endless)
			b.runs(key)
			h.of.Store(&of)
			_, _, err := b.Queue.Beat(t.Context(), "dead/1", time.Millisecond) // there is something to inherit
			require.NoError(t, err)
			eventually(t, func() bool { return h.hung.Load() > 0 }, deadline, 10*time.Millisecond)
			for range 3 {
				until := b.Job(key).Run.LeaseUntil
				eventually(t, func() bool { return b.Job(key).Run.LeaseUntil > until }, deadline, 10*time.Millisecond)
			}
		})
	}
}

// A body that can never be read ends its job after a few attempts, with an error that gives the
// reason. It does not hold up other jobs.
func TestUnreadableBodyEndsItsJob(t *testing.T) {
	type row struct {
		part, value, why string
		claims           int
	}
	beside.Cases(t, map[string]row{
		"sealed with another key": {"secret", "sealed elsewhere", "secrets cannot be decrypted", 3},
		"damaged":                 {"body", "no zstd", "corrupt value", 1},
		"gone":                    {"body", "", "no such job", 1},
	}, func(t *testing.T, tt row) {
		b := newDispatching(t, 0)
		broken := b.submit(picture)
		b.spoil(tt.part, broken, tt.value)
		good := b.submit(picture)
		b.add(newScripted(t))
		b.reaches(good, job.Done)
		failure := b.failure(broken)
		require.Contains(t, failure, "This prompt cannot run")
		require.Contains(t, failure, tt.why)
		b.leaves(broken)
		claims := func() int { return strings.Count(b.logged(), `goes to an instance" job=`+broken) }
		// A run may have ended before the log line about its claim is written.
		eventually(t, func() bool { return claims() >= tt.claims }, deadline, time.Millisecond)
		require.Equal(t, tt.claims, claims())
	})
}

// A job that no instance can run does not wait for ever, even if its body cannot be read either.
func TestUnrunnableJobWithoutABody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		key := b.submit(picture, func(s *queue.Submission) {
			needs := catalog.Requirements{Classes: []string{"Nowhere"}}
			s.Class, s.Body.Requires = needs.Signature(), needs.Encode()
		})
		b.spoil("body", key, "no zstd")
		b.set(func(s *Settings) { s.UnrunnableTimeout = time.Millisecond })
		require.Contains(t, b.failure(key), "No instance could run this prompt")
	})
}

// withInput stores an input and gives it to a job.
func (b *dispatching) withInput(data string) func(*queue.Submission) {
	ref := job.FileRef{Type: job.TypeInput, Filename: "in.png"}
	must(b.store.Upload(b.t.Context(), job.DefaultTenant, ref, true, strings.NewReader(data)))
	pins := must(b.store.Pin(b.t.Context(), job.DefaultTenant, []job.FileRef{ref}))
	encoded := must(pins.Encode())
	in := must(json.Marshal(files.Inputs{Version: 1, Pins: encoded}))
	return func(s *queue.Submission) { s.Body.Inputs = in }
}

// sick waits until the dispatcher gives out no jobs, or does so again.
func (b *dispatching) sick(sick bool) {
	eventually(b.t, func() bool { return (b.Openings.paused() != nil) == sick }, deadline, time.Millisecond)
}

// Jobs whose inputs cannot be read because the storage is away wait for it, whether it cannot be
// reached, has lost its folder, or shows the empty folder below a mount. They are not claimed again
// and again meanwhile, and run soon after it is back.
func TestStorageIsAway(t *testing.T) {
	inBubbles(t, map[string]func(path string) error{
		// Nobody can read a link to itself, not even root.
		"it cannot be read": func(path string) error { return os.Symlink(path, path) },
		"it is gone":        func(string) error { return nil },
		"it is unmounted":   func(path string) error { return os.Mkdir(path, 0o700) },
	}, func(t *testing.T, replace func(path string) error) {
		b := newDispatching(t, 0)
		input := b.withInput("the input of many")
		var waiting []string
		for range 12 {
			waiting = append(waiting, b.submit(picture, input))
		}
		require.NoError(t, os.Rename(b.storage, b.storage+".away"))
		require.NoError(t, replace(b.storage))
		b.add(newScripted(t))
		b.add(newScripted(t))
		b.sick(true)
		require.Equal(t, "the hub's storage takes no files now; jobs wait until it does", b.Waiting.Explain(catalog.Requirements{}, "anybody"))
		require.NoError(t, os.RemoveAll(b.storage))
		require.NoError(t, os.Rename(b.storage+".away", b.storage))
		for _, key := range waiting {
			require.LessOrEqual(t, b.reaches(key, job.Done).Attempts, 1, "the job was not to blame")
		}
		require.Equal(t, len(waiting), b.instances[0].Started()+b.instances[1].Started(), "each ran once")
	})
}

// Inputs that cannot be read in an otherwise working storage hold up only the jobs that need them.
func TestInputsCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		input := b.withInput("the input of many")
		var waiting []string
		for range 12 {
			waiting = append(waiting, b.submit(picture, input))
		}
		content := filepath.Join(b.storage, "content")
		require.NoError(t, os.Rename(content, content+".away"))
		require.NoError(t, os.Symlink(content, content))
		b.add(newScripted(t))
		b.add(newScripted(t))
		all := func(are func(job.Job) bool) {
			left := slices.Clone(waiting)
			eventually(t, func() bool {
				left = slices.DeleteFunc(left, func(key string) bool { return are(b.Job(key)) })
				return len(left) == 0
			}, deadline, 50*time.Millisecond)
		}
		all(func(j job.Job) bool { return len(j.Lost) > 0 }) // each is tried, and none hides those behind it
		for _, key := range waiting {
			require.Contains(t, b.Job(key).Lost[0], ": the hub's storage cannot be read")
		}
		b.reaches(b.submit(picture), job.Done)
		require.NoError(t, os.Remove(content))
		require.NoError(t, os.Rename(content+".away", content))
		all(func(j job.Job) bool { return j.State == job.Done })
		for _, key := range waiting {
			require.LessOrEqual(t, b.Job(key).Attempts, 1, "the job was not to blame")
		}
	})
}

// A job whose input is gone for good ends.
func TestInputIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		key := b.submit(picture, func(s *queue.Submission) {
			b.withInput("another")(s)
			require.NoError(t, os.RemoveAll(filepath.Join(b.storage, "content")))
		})
		require.Contains(t, b.failure(key), "an input file is gone")
		require.Equal(t, 1, b.Job(key).Attempts)
	})
}

// A finished run whose instance does not come back runs again, after a while.
func TestInstanceIsGoneWithItsOutputs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1, func(b *dispatching, c *Config) {
			copies := files.NewCollector(b.store, b.fetch, files.CollectorOptions{Patience: files.Patience{Contact: 300 * time.Millisecond}})
			t.Cleanup(copies.Close)
			c.Files = files.NewTransfer(b.store, copies, nil, c.Logger)
		})
		b.instances[0].on("GET /view", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusBadGateway)
		})
		require.Contains(t, b.lost(b.submit(picture)), "an output file cannot be copied")
	})
}
