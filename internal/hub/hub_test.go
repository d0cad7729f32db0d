package hub

import (
	"bytes"
	"errors"
	"fmt"
	"image/png"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/sim"
)

func TestPictureThroughTheHub(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		socket := b.dial("ann")
		id := b.submit(picture(0xff0000), "ann")
		types := socket.until(id)
		require.Equal(t, "execution_start", types[0])
		require.Equal(t, "execution_success", types[len(types)-2])
		e, ok := b.history(id)
		require.True(t, ok, "the history must be readable when executing null arrives")
		image := e.Outputs["2"].Images[0]
		require.Equal(t, "ComfyUI_00001_.png", image.Filename)
		body := b.gets("/view?filename=" + image.Filename + "&type=" + image.Type)
		decoded := must(png.Decode(bytes.NewReader(body)))(t)
		require.Equal(t, 64, decoded.Bounds().Dx())
	})
}

func TestTwoServersDoNotMixUp(t *testing.T) {
	inBench(t, benchOf(2), func(t *testing.T, b *bench) {
		// Both instances write ComfyUI_00001_.png. Each client must get its own.
		colors := map[string]int{"ann": 0xff0000, "bob": 0x0000ff}
		var wait sync.WaitGroup
		sockets := map[string]*client{"ann": b.dial("ann"), "bob": b.dial("bob")}
		for name, color := range colors {
			socket := sockets[name]
			wait.Go(func() {
				for n := range 5 {
					// Long enough that the two overlap and need both instances.
					id := b.submit(work(10, color+n<<8, "none"), name)
					socket.until(id)
					e, ok := b.history(id)
					require.True(t, ok)
					body := b.gets("/view?filename=" + e.Outputs["3"].Images[0].Filename)
					img := must(png.Decode(bytes.NewReader(body)))(t)
					r, g, bl, _ := img.At(3, 3).RGBA()
					require.Equal(t, color+n<<8, int(r>>8)<<16|int(g>>8)<<8|int(bl>>8))
				}
			})
		}
		wait.Wait()
		require.Positive(t, b.instances[0].Finished())
		require.Positive(t, b.instances[1].Finished())
	})
}

func TestShortJobsDoNotWaitForALongOne(t *testing.T) {
	inBench(t, benchOf(3), func(t *testing.T, b *bench) {
		long := b.begins(endless(1), "video")
		var ids []string
		for n := range 12 {
			ids = append(ids, b.submit(work(1, 100+n, "none"), fmt.Sprint("c", n)))
		}
		for _, id := range ids {
			require.Equal(t, "success", b.finished(id).Status.Text)
		}
		_, done := b.history(long)
		require.False(t, done, "the long job still runs")
		require.Equal(t, 13, started(b), "each ran once")
		b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, long))
		require.Equal(t, "error", b.finished(long).Status.Text)
	})
}

func started(b *bench) int {
	n := 0
	for _, i := range b.instances {
		n += i.Started()
	}
	return n
}

func TestAnotherInstanceTakesOverFromADeadOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) {
			// This takes minutes for work that the other instance does in no time.
			b.instances = append(b.instances, newInstance(t, sim.Config{TimeScale: 10}))
		})
		socket := b.dial("ann")
		id := b.submit(work(20, 7, "none"), "ann")
		require.Equal(t, "execution_start", socket.next().Type)
		b.instances = append(b.instances, newInstance(t, sim.Config{}))
		b.settings.Instances = append(b.settings.Instances, b.instances[1].url())
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		b.connected(2)
		b.instances[0].die()
		starts := 1
		for {
			m := socket.next()
			require.Equal(t, id, m.Data.PromptID)
			if m.Type == "execution_start" {
				starts++
			}
			if m.Type == "executing" && m.Data.Node == nil {
				break
			}
		}
		require.Equal(t, 2, starts, "the client sees the second attempt from its beginning")
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.Equal(t, 2, started(b))
	})
}

func TestInstanceRestartsInMidRun(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		id := b.begins(work(20, 7, "none"), "ann")
		b.instances[0].die()
		b.instances[0].revive()
		require.Equal(t, "success", b.finished(id).Status.Text)
	})
}

func TestLostSocketIsNoLostRun(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		socket := b.dial("ann")
		id := b.submit(work(30, 7, "none"), "ann")
		require.Equal(t, "execution_start", socket.next().Type)
		b.instances[0].DropSockets()
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.Equal(t, 1, started(b), "the run went on")
		for {
			m := socket.next()
			require.NotEqual(t, "execution_start", m.Type)
			if m.Type == "executing" && m.Data.Node == nil {
				break
			}
		}
	})
}

func TestGraphErrorIsNotRetried(t *testing.T) {
	inBench(t, benchOf(2), func(t *testing.T, b *bench) {
		socket := b.dial("ann")
		id := b.submit(work(1, 7, "error"), "ann")
		types := socket.until(id)
		require.Equal(t, "execution_error", types[len(types)-2])
		e := b.finished(id)
		require.Equal(t, "error", e.Status.Text)
		require.False(t, e.Status.Completed)
		require.Equal(t, 1, started(b))
	})
}

// submissionOf is what a dialect makes of a graph.
func submissionOf(t *testing.T, graph string) Submission {
	t.Helper()
	request := must(catalog.ParseRequest([]byte(`{"prompt": ` + graph + `}`)))(t)
	return Submission{Requester: job.Requester{Tenant: job.DefaultTenant, Caller: "from:test"}, Graph: request.Graph, Extra: request.Extra}
}

// The hub takes prompts from any dialect, so this test makes no request.
func TestSubmitWithoutARequest(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		p := submissionOf(t, picture(7))
		p.ID, p.Priority = "same", 1000
		for range 2 { // sent twice it is one job
			var answers []Accepted
			b.hub.Submitter().Submit(t.Context(), p, func(a Accepted, err error) {
				require.NoError(t, err)
				answers = append(answers, a)
			})
			require.Len(t, answers, 1)
			require.Equal(t, "same", answers[0].ID)
			require.Zero(t, answers[0].NodeErrors.Len())
			require.Equal(t, "success", b.finished("same").Status.Text)
		}
		require.Equal(t, 1, started(b))
		j := must(b.hub.jobs.Find(t.Context(), job.DefaultTenant, "same"))(t)
		require.Equal(t, job.MaxPriority, j.Priority)
		require.Equal(t, "from:test", j.Caller)
	})
}

func TestSubmitRefusals(t *testing.T) {
	inBench(t, benchOf(0, func(b *bench) { b.settings.MaxQueue = 1 }), func(t *testing.T, b *bench) {
		submit := func(graph string) (accepted Accepted, err error) {
			answers := 0
			b.hub.Submitter().Submit(t.Context(), submissionOf(t, graph), func(a Accepted, e error) { accepted, err, answers = a, e, answers+1 })
			require.Equal(t, 1, answers)
			return accepted, err
		}
		var answer *catalog.Answer
		_, err := submit(`{"1": {"inputs": {}}}`)
		require.ErrorAs(t, err, &answer)
		require.Equal(t, 400, answer.Status)

		accepted := must(submit(picture(1)))(t)
		require.Zero(t, accepted.Position)
		require.NotEmpty(t, accepted.ID, "the hub makes an id")
		_, err = submit(picture(2))
		require.ErrorIs(t, err, queue.ErrFull)
	})
}

// loggedDoor records when a door is closed.
type loggedDoor struct {
	door
	log *[]string
}

func (d loggedDoor) Close() {
	*d.log = append(*d.log, "closed")
	d.door.Close()
}

// Messages of a run may follow once the door of its job is closed. A client that
// is told of an error must have that answer by then, just like a client that is
// told an id: a job may be queued even though its client is told of an error.
func TestDoorStaysOpenUntilTheAnswer(t *testing.T) {
	inBench(t, benchOf(1, patient), func(t *testing.T, b *bench) {
		var log []string
		submitter := *b.hub.Submitter()
		submitter.door = func(key string) door { return loggedDoor{b.hub.dispatch.Doors.Open(key), &log} }
		for _, test := range []struct {
			graph   string
			refused bool
		}{{checked(-1, false), true}, {checked(1, false), false}} { // refused first, so that the instance is idle
			log = nil
			submitter.Submit(t.Context(), submissionOf(t, test.graph), func(_ Accepted, err error) {
				log = append(log, "answered")
				var refusal *catalog.Answer
				require.Equal(t, test.refused, errors.As(err, &refusal), "%v", err)
			})
			require.Equal(t, []string{"answered", "closed"}, log)
		}
	})
}
