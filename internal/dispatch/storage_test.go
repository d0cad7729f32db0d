package dispatch

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// withInput stores an input and gives it to a job.
func (b *dispatching) withInput(data string) func(*queue.Submission) {
	b.t.Helper()
	ref := job.FileRef{Type: job.TypeInput, Filename: "in.png"}
	must(b.store.Upload(b.t.Context(), job.DefaultTenant, ref, true, strings.NewReader(data)))
	pins := must(b.store.Pin(b.t.Context(), job.DefaultTenant, []job.FileRef{ref}))
	encoded := must(pins.Encode())
	in := must(json.Marshal(files.Inputs{Version: 1, Pins: encoded}))
	return func(s *queue.Submission) { s.Body.Inputs = in }
}

// sick waits until the dispatcher gives out no jobs, or does so again.
func (b *dispatching) sick(sick bool) {
	b.t.Helper()
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
		for range 40 {
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
		many := 120
		if testing.Short() {
			many = 12
		}
		for range many {
			waiting = append(waiting, b.submit(picture, input))
		}
		content := filepath.Join(b.storage, "content")
		require.NoError(t, os.Rename(content, content+".away"))
		require.NoError(t, os.Symlink(content, content))
		b.add(newScripted(t))
		b.add(newScripted(t))
		// On a slow machine, taking turns with that many takes more than a minute, and so do their
		// pauses.
		all := func(are func(job.Job) bool) {
			t.Helper()
			left := slices.Clone(waiting)
			eventually(t, func() bool {
				left = slices.DeleteFunc(left, func(key string) bool { return are(b.Job(key)) })
				return len(left) == 0
			}, 4*deadline, 50*time.Millisecond)
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

// failsAtPost makes the storage take no outputs once a job is on an instance, until mend is called.
func (b *dispatching) failsAtPost() (mend func()) {
	output := filepath.Join(b.storage, "output")
	fail := sync.OnceFunc(func() {
		// Not even root can write below a file. A check of the storage may recreate the folder
		// between the two steps.
		for err := os.ErrExist; err != nil; err = os.WriteFile(output, nil, 0o600) {
			_ = os.RemoveAll(output)
		}
	})
	for _, i := range b.instances {
		i.on("POST /prompt", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			fail()
			next.ServeHTTP(w, r)
		})
	}
	return func() { require.NoError(b.t, os.Remove(output)) }
}

// A run that finished while the storage takes no files is kept. Nothing else is claimed, because
// its work would have to wait as well. When the storage works again, nothing has run twice.
func TestStorageTakesNoFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 2)
		mend := b.failsAtPost()
		keys := []string{b.submit(picture)}
		b.sick(true)
		for range 10 {
			keys = append(keys, b.submit(picture))
		}
		eventually(t, func() bool { return strings.Contains(b.logged(), "no jobs are given out until it can") }, deadline, time.Millisecond)
		started := b.instances[0].Started() + b.instances[1].Started()
		require.LessOrEqual(t, started, 2, "at most one for each instance")
		mend()
		for _, key := range keys {
			require.Empty(t, b.reaches(key, job.Done).Lost)
		}
		require.Equal(t, len(keys), b.instances[0].Started()+b.instances[1].Started(), "each ran once")
		b.sick(false)
	})
}

// A hub that restarts while it keeps a run for the storage goes on keeping it.
func TestKeptRunOutlivesItsHub(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		mend := b.failsAtPost()
		key := b.submit(picture)
		eventually(t, func() bool { return strings.Contains(b.logged(), "cannot copy an output yet") }, deadline, time.Millisecond)
		b.restart("hub/2")
		mend()
		require.Empty(t, b.reaches(key, job.Done).Lost)
		require.Equal(t, 1, b.instances[0].Started(), "it ran once")
	})
}

// line is a TCP proxy in front of an instance. It can be cut for a while.
type line struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	conns map[net.Conn]bool
	// blinks is how many connections it will refuse.
	blinks int
	closed bool
}

func newLine(t *testing.T, target string) *line {
	t.Helper()
	listener := loopback.Listen()
	u := must(url.Parse(target))
	l := &line{listener: listener, target: u.Host, conns: map[net.Conn]bool{}}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			done.Go(func() { l.carry(near) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		l.mu.Lock()
		l.closed = true // one may be accepted that nobody has started to carry
		l.mu.Unlock()
		l.cut(0)
		done.Wait()
	})
	return l
}

func (l *line) url() string { return "http://" + l.listener.Addr().String() }

// cut ends all connections, and the next ones before they carry anything.
func (l *line) cut(next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blinks = next
	for c := range l.conns {
		c.Close()
	}
}

func (l *line) carry(near net.Conn) {
	defer near.Close()
	l.mu.Lock()
	if l.blinks > 0 || l.closed {
		l.blinks--
		l.mu.Unlock()
		return
	}
	far, err := loopback.Dial(context.Background(), "tcp", l.target)
	if err != nil {
		l.mu.Unlock()
		return
	}
	defer far.Close()
	l.conns[near], l.conns[far] = true, true
	l.mu.Unlock()
	ended := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(far, near); ended <- struct{}{} }()
	go func() { _, _ = io.Copy(near, far); ended <- struct{}{} }()
	<-ended
	near.Close()
	far.Close()
	<-ended
	l.mu.Lock()
	delete(l.conns, near)
	delete(l.conns, far)
	l.mu.Unlock()
}

// addOver adds an instance that is reached through a line.
func (b *dispatching) addOver(s *scripted, l *line) {
	name := must(b.fleet.AddStatic(l.url()))
	s.name = name
	b.instances = append(b.instances, s)
	b.fleet.Observe(fleet.InstanceReport{Name: name, URL: l.url(), Direct: true, Kind: fleet.KindComfyUI, Up: true, Boot: 1})
}

// If the line to the instance breaks while the outputs of a finished run are named or copied,
// neither the run nor a result is lost.
func TestLineBreaksWhileOutputsAreCopied(t *testing.T) {
	t.Parallel()
	for name, during := range map[string][]string{"copied": {"GET /view"}, "named": {"GET /view", "HEAD /view"}} {
		for part, half := range map[string]bool{"before the answer": false, "in the middle of it": true} {
			t.Run(name+" "+part, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					b := newDispatching(t, 0)
					instance := newScripted(t)
					l := newLine(t, instance.web.URL)
					b.addOver(instance, l)
					var cuts atomic.Int32
					for _, request := range during {
						instance.on(request, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
							if cuts.Add(1) > int32(2*len(during)) {
								next.ServeHTTP(w, r)
								return
							}
							if half {
								whole := httptest.NewRecorder()
								next.ServeHTTP(whole, r)
								maps.Copy(w.Header(), whole.Header())
								w.WriteHeader(whole.Code)
								_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
								_ = http.NewResponseController(w).Flush()
							}
							l.cut(3)
						})
					}
					j := b.reaches(b.submit(picture), job.Done)
					require.Empty(t, j.Lost)
					require.Equal(t, 1, instance.Started(), "it ran once")
					require.Positive(t, cuts.Load())
					require.NotEmpty(t, b.stored(j))
				})
			})
		}
	}
}

// stored returns the bytes of the first output of a job as the hub has stored them.
func (b *dispatching) stored(j job.Job) []byte {
	b.t.Helper()
	e := must(b.store.Resolve(b.t.Context(), job.DefaultTenant, job.FileRef{Type: job.TypeOutput, Filename: "ComfyUI_00001_.png"}))
	require.True(b.t, e.Stored())
	body := must(b.store.Open(b.t.Context(), e, 0, -1))
	defer body.Close()
	data := must(io.ReadAll(body))
	require.Len(b.t, data, int(e.Size))
	return data
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

// A client can end a job whose outputs take for ever.
func TestCancelWhileOutputsAreCopied(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		copying, hang := make(chan struct{}, 10), make(chan struct{})
		b.instances[0].on("GET /view", func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
			copying <- struct{}{}
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		})
		defer close(hang)
		key := b.submit(picture)
		<-copying
		must(b.Queue.Cancel(t.Context(), key))
		b.Runs.Cancel(key)
		b.reaches(key, job.Cancelled)
		b.leaves(key)
	})
}
