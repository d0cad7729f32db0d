package e2e

import (
	"fmt"
	"image"
	"image/color"
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
)

// A hub of another version and one of this version share a Redis, as during an
// upgrade, each with an instance of its own. Each answers for the other as well:
// where a job waits, runs and ends, its pictures, its cancels, and what clients
// hear over sockets at either.
func TestTwoVersionsShareARedis(t *testing.T) {
	set, _ := other(t)
	older, newer := newPair(t, redistest.Start(t), set, programstest.Built(t))
	for name, f := range map[string]*fleet{"older": older, "newer": newer} {
		f.startHub()
		f.startAgent(name, 1)
		f.idle(1)
	}
	whole := t
	for turn, hubs := range map[string][2]*fleet{"older first": {older, newer}, "newer first": {newer, older}} {
		at, beside := hubs[0], hubs[1]
		t.Run(turn, func(t *testing.T) {
			older.t, newer.t = t, t
			defer func() { older.t, newer.t = whole, whole }()
			id := func() string { return uuid.NewString() }
			client := id()

			// Uploaded and posted here, heard and read there, each in its turn:
			// whichever instance takes it.
			at.upload("ann", "photo.png", plain(color.RGBA{R: 9, G: 99, B: 199, A: 255}))
			require.NotEmpty(t, beside.fetch("ann", "/view?filename=photo.png&type=input"))
			socket := beside.listen("ann", client)
			for n, f := range []*fleet{at, beside, at, beside} {
				done := id()
				work := takes(1, "none", int(rand.Int32()))
				source := blank
				if n%2 > 0 {
					source = photo
				}
				f.post("ann", "/prompt", prompted(done, client, source, work))
				types := at.hears(socket, done, "execution_success")
				require.Equal(t, "execution_start", types[0])
				require.Contains(t, types, "progress")
				for _, f := range hubs {
					f.becomes("ann", done, "done")
					require.NotEmpty(t, f.fetch("ann", f.view("ann", done)))
					status, _ := f.call("bob", "GET", f.view("ann", done), "", nil)
					require.Equal(t, 404, status, "it is ann's")
				}
				require.JSONEq(t, string(at.fetch("ann", "/history/"+done)), string(beside.fetch("ann", "/history/"+done)))
			}

			// What is too large for one message between hubs.
			noise := image.NewRGBA(image.Rect(0, 0, 512, 512))
			for n := range noise.Pix {
				noise.Pix[n] = uint8(rand.Uint32()) | uint8(n%4/3*255) // opaque
			}
			at.upload("ann", "noise.png", noise)
			large := id()
			at.post("ann", "/prompt", fmt.Sprintf(`{"prompt_id": %q, "client_id": %q, "prompt": {
				"1": {"class_type": "LoadImage", "inputs": {"image": "noise.png"}},
				"3": {"class_type": "SaveImageWebsocket", "inputs": {"images": ["1", 0]}}}}`, large, client))
			require.Contains(t, at.hears(socket, large, "execution_success"), "binary")

			// Both instances work for ever, a third job waits; each is cancelled at
			// the hub that it was not posted at.
			running, waiting := []string{id(), id()}, id()
			for n, f := range hubs {
				f.post("ann", "/prompt", prompted(running[n], client, blank, takes(3600, "none", int(rand.Int32()))))
				f.becomes("ann", running[n], "running")
			}
			at.post("ann", "/prompt", prompted(waiting, client, blank, invert))
			for _, f := range hubs {
				require.ElementsMatch(t, append(running, waiting), f.queued("ann"))
			}
			beside.post("ann", "/queue", fmt.Sprintf(`{"delete": [%q]}`, waiting))
			beside.post("ann", "/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, running[0]))
			at.post("ann", "/hub/jobs/"+running[1]+"/cancel", "")
			for _, f := range hubs {
				for _, stopped := range append(running, waiting) {
					f.becomes("ann", stopped, "cancelled")
				}
				require.Empty(t, f.queued("ann"))
			}

			// The client comes back at the other hub and hears what it has missed.
			_ = socket.CloseNow()
			missed := id()
			beside.post("ann", "/prompt", prompted(missed, client, blank, invert))
			beside.becomes("ann", missed, "done")
			back := at.listen("ann", client)
			require.Equal(t, "execution_start", at.hears(back, missed, "execution_success")[0])
			at.post("ann", "/history", fmt.Sprintf(`{"delete": [%q]}`, missed))
			require.JSONEq(t, `{}`, string(beside.fetch("ann", "/history/"+missed)))
		})
	}

	// The older hub is stopped during a run: the newer one gets its job done.
	job := uuid.NewString()
	older.post("ann", "/prompt", prompted(job, "ann", blank, takes(3600, "none", int(rand.Int32()))))
	older.becomes("ann", job, "running")
	older.Hub.Kill()
	require.Equal(t, []string{job}, newer.queued("ann"))
	newer.post("ann", "/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, job))
	newer.becomes("ann", job, "cancelled")
}
