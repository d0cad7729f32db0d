package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// soakTime is how long guests keep coming in TestSoak; COMFYHUB_SOAK sets
// another time, such as 10m.
const soakTime = 2 * time.Second

// maxVisit is how long a visit may last. A guest who still waits then was never
// told of an end.
const maxVisit = 2 * patience

// visits are what the guests of TestSoak do: everything that clients of ComfyUI
// do, at once. Each visit is one round; two guests repeat it until the time is
// over.
var visits = []struct {
	name  string
	visit func(g *guest, ctx context.Context) error
}{
	{"posts three and listens", (*guest).postThree},
	{"posts five and wants pictures with metadata", (*guest).wantMetadata},
	{"reconnects in the middle", (*guest).reconnect},
	{"has no client id", (*guest).nameless},
	{"polls the history", (*guest).poll},
	{"uses the jobs API", (*guest).useJobs},
	{"listens live", (*guest).live},
	{"uploads a picture", (*guest).upload},
	{"interrupts and deletes", (*guest).interrupt},
	{"takes results from the socket", (*guest).resultsBySocket},
}

// Twenty clients at once, each in its own way: none sees a message or a
// picture of another, each prompt ends once and whole, no socket falls silent.
func TestSoak(t *testing.T) {
	t.Parallel()
	duration := soakTime
	if text := os.Getenv("COMFYHUB_SOAK"); text != "" {
		var err error
		duration, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	for name, redis := range map[string]func(*testing.T) string{
		"redis":    func(t *testing.T) string { return redistest.Start(t).URL() },
		"embedded": func(*testing.T) string { return "embedded" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			soak(t, redis(t), duration/2)
		})
	}
}

func soak(t *testing.T, redis string, duration time.Duration) {
	f := newFleet(t, redis)
	f.startHub()
	f.startAgent("gpu", 3, "--preview-method", "auto")
	f.idle(3)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var tally tally
	until := time.Now().Add(duration)
	group, ctx := errgroup.WithContext(t.Context())
	for n := range 2 * len(visits) {
		way := visits[n/2]
		g := &guest{
			url: "http://" + f.Addr, name: fmt.Sprintf("guest-%d", n), number: n + 1, tally: &tally,
			rand: rand.New(rand.NewPCG(seed, uint64(n))), prompts: map[string]*prompt{},
		}
		group.Go(func() error {
			for time.Now().Before(until) {
				g.id = fmt.Sprint(g.name, "-", g.posted)
				visit, cancel := context.WithTimeout(ctx, maxVisit)
				err := way.visit(g, visit)
				cancel()
				if err != nil {
					return fmt.Errorf("%s, who %s: %w", g.name, way.name, err)
				}
				tally.visits.Add(1)
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	// A prompt that was deleted too late may end after its guest has gone.
	f.eventually(func() bool {
		var left struct {
			Running []json.RawMessage `json:"queue_running"`
			Pending []json.RawMessage `json:"queue_pending"`
		}
		return f.get("/queue", &left) && len(left.Running)+len(left.Pending) == 0
	}, "nothing is left over")
	f.idle(3)
	for line := range strings.Lines(f.Hub.Log()) {
		require.NotContains(t, line, `"level":"error"`)
		require.NotContains(t, line, "panic")
	}
	t.Logf("%d visits, %d prompts, %d sockets, %d messages, %d pictures looked at",
		tally.visits.Load(), tally.prompts.Load(), tally.sockets.Load(), tally.messages.Load(), tally.pictures.Load())
}

// tally counts what was checked.
type tally struct{ visits, prompts, sockets, messages, pictures atomic.Int64 }

func (g *guest) postThree(ctx context.Context) error {
	s, err := g.dial(ctx, "", false)
	if err != nil {
		return err
	}
	defer s.close()
	return g.postAndListen(ctx, s, 3)
}

func (g *guest) wantMetadata(ctx context.Context) error {
	s, err := g.dial(ctx, "", true)
	if err != nil {
		return err
	}
	defer s.close()
	return g.postAndListen(ctx, s, 5)
}

func (g *guest) live(ctx context.Context) error {
	s, err := g.dial(ctx, "&events=live", false)
	if err != nil {
		return err
	}
	defer s.close()
	s.live = true
	return g.postAndListen(ctx, s, 4)
}

// postAndListen posts prompts at once, one of which may fail, and reads to
// their ends.
func (g *guest) postAndListen(ctx context.Context, s *socket, count int) error {
	var posted []*prompt
	for n := range count {
		p := g.prompt()
		if n == 1 && g.rand.IntN(3) == 0 {
			p.fail, p.want = "error", "execution_error"
		}
		if err := g.post(ctx, p, g.id); err != nil {
			return err
		}
		posted = append(posted, p)
	}
	if err := s.until(ctx, ended(posted...)); err != nil {
		return err
	}
	return g.verify(ctx, posted...)
}

// reconnect leaves after some messages and comes back until all prompts have
// ended. A prompt that ended unseen, or was seen only in part when the
// connection was cut, is sent whole. A client that closes in order has read what
// was written to the socket, as far as the hub can know, and looks at the
// history for the rest.
func (g *guest) reconnect(ctx context.Context) error {
	var posted []*prompt
	for range 3 {
		p := g.prompt()
		if err := g.post(ctx, p, g.id); err != nil {
			return err
		}
		posted = append(posted, p)
	}
	for done := ended(posted...); !done(); {
		s, err := g.dial(ctx, "", false)
		if err != nil {
			return err
		}
		s.again = true
		enough := g.rand.IntN(30)
		err = s.until(ctx, func() bool { return done() || s.messages > enough })
		if g.rand.IntN(2) == 0 {
			s.close()
			err = errors.Join(err, g.lookUp(ctx, posted))
		} else {
			s.conn.CloseNow()
		}
		if err != nil {
			return err
		}
	}
	return g.verify(ctx, posted...)
}

// lookUp counts prompts that are in the history as ended.
func (g *guest) lookUp(ctx context.Context, posted []*prompt) error {
	for _, p := range posted {
		if p.ends > 0 {
			continue
		}
		_, known, err := g.inHistory(ctx, p)
		if err != nil {
			return err
		}
		if known {
			p.ends++
		}
	}
	return nil
}

func (g *guest) nameless(ctx context.Context) error {
	p := g.prompt()
	if err := g.post(ctx, p, ""); err != nil {
		return err
	}
	return g.verify(ctx, p)
}

func (g *guest) poll(ctx context.Context) error {
	var posted []*prompt
	for range 2 {
		p := g.prompt()
		if err := g.post(ctx, p, g.id); err != nil {
			return err
		}
		posted = append(posted, p)
	}
	return g.verify(ctx, posted...)
}

// useJobs follows one prompt through /api/jobs and cancels another.
func (g *guest) useJobs(ctx context.Context) error {
	p, doomed := g.prompt(), g.prompt()
	doomed.endless()
	for _, each := range []*prompt{p, doomed} {
		if err := g.post(ctx, each, g.id); err != nil {
			return err
		}
	}
	status := func(p *prompt) (string, error) {
		var job struct{ ID, Status string }
		code, err := g.get(ctx, "/api/jobs/"+p.id, &job)
		if code == 404 {
			return "gone", nil
		}
		if err == nil && job.ID != p.id {
			err = fmt.Errorf("asked for job %s, got %q", p.id, job.ID)
		}
		return job.Status, err
	}
	err := g.wait(ctx, "the job ends", func() (bool, error) {
		s, err := status(p)
		return s == "completed", err
	})
	if err != nil {
		return err
	}
	if err := g.send(ctx, "/api/jobs/"+doomed.id+"/cancel", ""); err != nil {
		return err
	}
	err = g.wait(ctx, "the cancelled job ends", func() (bool, error) {
		s, err := status(doomed)
		return s == "cancelled" || s == "gone", err
	})
	if err != nil {
		return err
	}
	return g.verify(ctx, p)
}

// upload uses a picture whose name many use, with its own colour.
func (g *guest) upload(ctx context.Context) error {
	s, err := g.dial(ctx, "", false)
	if err != nil {
		return err
	}
	defer s.close()
	p := g.prompt()
	if p.input, err = g.uploadPicture(ctx, "photo.png", p.colour); err != nil {
		return err
	}
	if err := g.post(ctx, p, g.id); err != nil {
		return err
	}
	if err := s.until(ctx, ended(p)); err != nil {
		return err
	}
	return g.verify(ctx, p)
}

// interrupt stops the prompt that runs, deletes one that waits, and expects a
// third one to be untouched.
func (g *guest) interrupt(ctx context.Context) error {
	s, err := g.dial(ctx, "", false)
	if err != nil {
		return err
	}
	defer s.close()
	running, deleted, last := g.prompt(), g.prompt(), g.prompt()
	running.endless()
	running.want = "execution_interrupted"
	for _, p := range []*prompt{running, deleted, last} {
		if err := g.post(ctx, p, g.id); err != nil {
			return err
		}
	}
	if err := g.send(ctx, "/queue", fmt.Sprintf(`{"delete": [%q]}`, deleted.id)); err != nil {
		return err
	}
	if err := s.until(ctx, func() bool { return running.working }); err != nil {
		return err
	}
	// By its id: a bare interrupt would mean the deleted one, had that run first.
	if err := g.send(ctx, "/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, running.id)); err != nil {
		return err
	}
	if err := s.until(ctx, ended(running, last)); err != nil {
		return err
	}
	// A prompt that had begun before the delete ends like any other.
	code, known, err := g.inHistory(ctx, deleted)
	switch {
	case err != nil:
		return fmt.Errorf("history: %d %w", code, err)
	case known:
		if err := s.until(ctx, ended(deleted)); err != nil {
			return err
		}
	}
	return g.verify(ctx, last)
}

func (g *guest) resultsBySocket(ctx context.Context) error {
	s, err := g.dial(ctx, "", g.number%2 == 0)
	if err != nil {
		return err
	}
	defer s.close()
	var posted []*prompt
	for range 2 {
		p := g.prompt()
		p.bySocket = true
		if err := g.post(ctx, p, g.id); err != nil {
			return err
		}
		posted = append(posted, p)
	}
	return s.until(ctx, ended(posted...))
}
