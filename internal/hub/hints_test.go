package hub_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

// advice is an answer about hints.
type advice struct {
	Runs    int
	Seconds float64
	Where   []spent
	Hints   []hint
	// Dismissed are the names of the hints that the job's tenant does not want to see.
	Dismissed []string
}

type spent struct {
	Class   string `json:"class_type"`
	Phase   string
	Seconds float64
}

type hint struct {
	Name, Text, Job string
	Saves           float64
}

// advised asks for the hints of a job.
func (b *bench) advised(id string) (a advice) {
	b.t.Helper()
	require.NoError(b.t, json.Unmarshal(b.gets("/hub/v1/hints/"+id), &a))
	return a
}

// Where the time of a job goes is learned (the instance is fifty times as fast as it says) from runs of its kind, before it has run itself.
func TestWhereTheTimeGoes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		of := b.advised
		short := b.submit(work(10, 1, "none"), "ann")
		b.finished(short)
		require.Zero(t, of(short).Runs, "nobody asks where a fifth of a second went")
		for n, seconds := range []float64{150, 250} {
			b.finished(b.submit(work(seconds, 2+n, "none"), "ann"))
		}
		waiting := b.submit(work(3600, 9, "none"), "bob")
		a := of(waiting)
		require.Equal(t, 2, a.Runs)
		require.Equal(t, "SimulatedWork", a.Where[0].Class)
		require.InDelta(t, 4, a.Where[0].Seconds, 0.5)
		require.GreaterOrEqual(t, a.Seconds, a.Where[0].Seconds)
		require.Empty(t, a.Hints)
		var whole struct{ Time advice }
		require.NoError(t, json.Unmarshal(b.gets("/hub/jobs/"+waiting+"/whole"), &whole))
		require.Equal(t, a, whole.Time)
		status, _ := b.get("/hub/v1/hints/none")
		require.Equal(t, http.StatusNotFound, status)
		b.tenant = "eve"
		status, _ = b.get("/hub/v1/hints/" + waiting)
		require.Equal(t, http.StatusNotFound, status, "another tenant's")
		b.tenant = ""
		b.posts("/interrupt", `{"prompt_id": "`+waiting+`"}`)
		<-time.After(time.Second)
	})
}

// slowPicture has classes of which it is known that they give the same again.
func slowPicture(seed int) string {
	return fmt.Sprintf(`{"1": {"class_type": "KSampler", "inputs": {"seed": %d, "steps": 20, "cfg": 8.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1,
			"model": ["2", 0], "positive": ["3", 0], "negative": ["3", 0], "latent_image": ["4", 0]}},
		"2": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sd15.safetensors"}},
		"3": {"class_type": "CLIPTextEncode", "inputs": {"text": "a fox", "clip": ["2", 1]}},
		"4": {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 512, "batch_size": 1}},
		"5": {"class_type": "VAEDecode", "inputs": {"samples": ["1", 0], "vae": ["2", 2]}},
		"6": {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": "x"}}}`, seed)
}

// The same prompt was made before: whoever asks is told which job has it, before and after it has run,
// and nobody else is.
func TestTheSameWasMadeBefore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) {
			b.instances = append(b.instances, newInstance(t, sim.Config{
				TimeScale: 1, OnlyClasses: append([]string{"CLIPTextEncode"}, someClasses...), Models: map[string][]string{"checkpoints": {"sd15.safetensors"}},
			}))
		})
		made := func(seed int) (id string) {
			id = b.submit(slowPicture(seed), "ann")
			b.finished(id)
			return id
		}
		first := made(1)
		require.Empty(t, b.advised(first).Hints)
		<-time.After(time.Hour)
		require.Empty(t, b.advised(made(2)).Hints, "another picture")

		b.tenant = "eve"
		require.Empty(t, b.advised(made(1)).Hints, "another tenant's pictures are nobody's business")
		b.tenant = ""

		second := b.submit(slowPicture(1), "ann")
		for _, when := range []string{"before", "after"} {
			hints := b.advised(second).Hints
			require.Len(t, hints, 1, when)
			require.Equal(t, "same_prompt", hints[0].Name)
			require.Equal(t, first, hints[0].Job)
			require.Regexp(t, `^The same was made 6\d min ago: open that\.$`, hints[0].Text)
			require.Greater(t, hints[0].Saves, 1.0)
			b.finished(second)
		}
		status, _ := b.post("/hub/v1/hints/"+second+"/dismiss/"+"sampling", "")
		require.Equal(t, http.StatusNotFound, status)
		for range 2 {
			b.posts("/hub/v1/hints/"+second+"/dismiss/same_prompt", "")
		}
		require.Empty(t, b.advised(second).Hints)
		third := made(1)
		require.Empty(t, b.advised(third).Hints, "for all of the tenant's jobs")
		require.Equal(t, []string{"same_prompt"}, b.advised(third).Dismissed)
		status, _ = b.post("/hub/v1/hints/"+second+"/restore/"+"sampling", "")
		require.Equal(t, http.StatusNotFound, status)
		b.posts("/hub/v1/hints/"+third+"/dismiss/downloads", "")
		for range 2 {
			b.posts("/hub/v1/hints/"+third+"/restore/same_prompt", "")
		}
		again := b.advised(second)
		require.Equal(t, "same_prompt", again.Hints[0].Name, "until the tenant wants to see it again")
		require.Equal(t, []string{"downloads"}, again.Dismissed)
		b.posts("/hub/v1/hints/"+third+"/restore/downloads", "")
		require.Empty(t, b.advised(third).Dismissed)
		b.posts("/hub/v1/hints/"+third+"/dismiss/same_prompt", "")

		b.posts("/history", `{"clear": true}`)
		b.tenant = "eve"
		eve := made(1)
		require.Len(t, b.advised(eve).Hints, 1, "who has dismissed nothing")
		require.Empty(t, b.advised(eve).Dismissed)
		status, _ = b.post("/hub/v1/hints/"+second+"/dismiss/same_prompt", "")
		require.Equal(t, http.StatusNotFound, status, "of another tenant's job")
		status, _ = b.post("/hub/v1/hints/"+second+"/restore/same_prompt", "")
		require.Equal(t, http.StatusNotFound, status, "of another tenant's job")
	})
}

// What is made for a preview that nobody opens is told; once somebody has opened it, it is not.
func TestPreviewsThatNobodyOpens(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		made := func(nonce int) (id, preview string) {
			id = b.submit(fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": %[1]d}},
				"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": 150, "steps": 10, "fail": "none", "nonce": %[1]d}},
				"3": {"class_type": "PreviewImage", "inputs": {"images": ["2", 0]}},
				"4": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}}`, nonce), "ann")
			return id, b.finished(id).Outputs["3"].Images[0].Filename
		}
		for n := range 2 {
			made(n)
		}
		unseen, _ := made(3)
		seen, preview := made(4)
		require.Empty(t, b.advised(unseen).Hints, "somebody may open it yet")
		status, _ := b.get("/view?type=temp&filename=" + preview)
		require.Equal(t, http.StatusOK, status)
		<-time.After(time.Hour)
		require.Empty(t, b.advised(seen).Hints)
		hints := b.advised(unseen).Hints
		require.Len(t, hints, 1)
		require.Equal(t, "unseen_preview", hints[0].Name)
		require.Regexp(t, `^3\.\d s of 3\.\d s is for previews that nobody has opened: leave them out\.$`, hints[0].Text)
	})
}
