package hub

import (
	"bytes"
	"fmt"
	"image/png"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

func TestPictureThroughTheHub(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		socket := b.dial("ann")
		id := b.submit(picture(0xff0000), "ann")
		types := socket.until(id)
		require.Equal(t, "execution_start", types[0])
		require.Equal(t, "execution_success", types[len(types)-2])
		e, ok := b.history(id)
		require.True(t, ok, "the history must be readable when executing null arrives")
		image := e.Outputs["2"].Images[0]
		require.Equal(t, "ComfyUI_00001_.png", image.Filename)
		status, body := b.get("/view?filename=" + image.Filename + "&type=" + image.Type)
		require.Equal(t, http.StatusOK, status)
		decoded, err := png.Decode(bytes.NewReader(body))
		require.NoError(t, err)
		require.Equal(t, 64, decoded.Bounds().Dx())
	})
}

func TestTwoServersDoNotMixUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 2)
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
					status, body := b.get("/view?filename=" + e.Outputs["3"].Images[0].Filename)
					require.Equal(t, http.StatusOK, status)
					img, err := png.Decode(bytes.NewReader(body))
					require.NoError(t, err)
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
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 3)
		long := b.submit(endless(1), "video")
		eventually(t, func() bool { return started(b) == 1 }, time.Minute, 5*time.Millisecond)
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
		status, _ := b.post("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, long))
		require.Equal(t, http.StatusOK, status)
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
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		id := b.submit(work(20, 7, "none"), "ann")
		eventually(t, func() bool { return started(b) == 1 }, time.Minute, time.Millisecond)
		b.instances[0].die()
		b.instances[0].revive()
		require.Equal(t, "success", b.finished(id).Status.Text)
	})
}

func TestLostSocketIsNoLostRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
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
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 2)
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
