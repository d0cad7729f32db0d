package dispatch

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// longBatch is a graph of two pictures that several instances can make together, and take long.
const longBatch = `{"3": {"class_type": "KSampler", "inputs": {"seed": 1, "steps": 10000, "cfg": 8.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1,
		"model": ["4", 0], "positive": ["6", 0], "negative": ["6", 0], "latent_image": ["5", 0]}},
	"4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}},
	"5": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 128, "batch_size": 2}},
	"6": {"class_type": "CLIPTextEncode", "inputs": {"text": "tree", "clip": ["4", 1]}},
	"8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
	"9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "ComfyUI", "images": ["8", 0]}}}`

// inTwo asks for two parts of longBatch.
func inTwo(s *queue.Submission) {
	needs := catalog.Requirements{Classes: []string{"CLIPTextEncode", "CheckpointLoaderSimple", "EmptyLatentImage", "KSampler", "SaveImage", "VAEDecode"}}
	s.Class, s.Body.Requires = needs.Signature(), needs.Encode()
	s.Body.Extra, s.Body.Outputs = []byte(`{"comfyhub": {"split": true}}`), []string{"9"}
}

// A part that waits behind the run of its job stays there although an instance with another GPU is idle:
// that one may not make it.
func TestWaitingPartIsNotTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 2, func(b *dispatching, _ *Config) { b.settings.Ahead, b.settings.Split = true, true })
		b.connects(2)
		key := b.submit(longBatch, inTwo)
		eventually(t, func() bool { return len(b.Job(key).Parts) == 1 }, deadline, 10*time.Millisecond)
		part := b.Job(key).Parts[0]
		b.runs(part)
		b.set(func(s *Settings) { s.ContactTimeout = time.Second })
		b.at(part).Kill()
		require.Same(t, b.at(key), b.waitsThere(part))
		before := b.Job(part).Fence

		name := b.addOther()
		eventually(t, func() bool { return b.Instances.Get(name) != nil && b.Instances.Get(name).Abilities() != nil }, deadline, 10*time.Millisecond)
		require.Never(t, func() bool { return b.Job(part).Fence != before }, 5*time.Second, 100*time.Millisecond)
		require.NotContains(t, b.logged(), "taken back")
		must(b.Queue.Cancel(t.Context(), key))
		b.reaches(key, job.Cancelled)
		b.leaves(part)
	})
}

// If the files of a part are gone before the hub has fetched them, only that part is made again, and the
// instance that has made the first is not blamed.
func TestFilesOfAPartAreGone(t *testing.T) {
	inBubbles(t, map[string]func(there *scripted) (forgets func() bool){
		"they were deleted, and it has its results in its cache": func(there *scripted) func() bool {
			there.on("GET /view", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusNotFound) })
			var freed atomic.Bool
			there.on("POST /free", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				there.on("GET /view", nil)
				freed.Store(true)
				next.ServeHTTP(w, r)
			})
			return freed.Load
		},
		"its instance goes": func(there *scripted) func() bool {
			there.on("GET /view", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				there.Kill()
				w.WriteHeader(http.StatusBadGateway)
			})
			return func() bool { return true }
		},
	}, func(t *testing.T, spoil func(there *scripted) (forgets func() bool)) {
		b := newDispatching(t, 2, func(b *dispatching, _ *Config) { b.settings.Split = true })
		b.connects(2)
		key := b.submit(strings.Replace(longBatch, "10000", "1000", 1), inTwo)
		eventually(t, func() bool { return len(b.Job(key).Parts) == 1 }, deadline, 10*time.Millisecond)
		part := b.Job(key).Parts[0]
		b.runs(part)
		first := b.at(key)
		forgets := spoil(b.at(part))
		var j job.Job
		eventually(t, func() bool {
			j = b.Job(key)
			return j.State == job.Done
		}, 10*time.Minute, 100*time.Millisecond)
		require.Empty(t, j.Lost)
		require.Empty(t, j.FailedAt)
		require.Equal(t, first.name, j.Run.Instance)
		started := 0
		for _, i := range b.instances {
			started += i.Started()
		}
		require.Equal(t, 3, started, "only one part was made again")
		require.Equal(t, 2, strings.Count(string(b.entry(key).Outputs), "ComfyUI_"))
		require.True(t, forgets(), "the instance would name the same files again")
	})
}

// addOther adds an instance with another GPU than the others.
func (b *dispatching) addOther() (name string) {
	other := newScripted(b.t)
	name = must(b.fleet.AddStatic(other.web.URL))
	other.name, b.instances = name, append(b.instances, other)
	b.fleet.Observe(fleet.InstanceReport{Name: name, URL: other.web.URL, Direct: true, Kind: fleet.KindComfyUI, Up: true, Boot: 1, GPU: "NVIDIA GeForce RTX 4090"})
	return name
}

// A prompt whose first part is lost and then goes to an instance with another GPU is made there as a whole:
// no batch has pictures of two.
func TestPartsAreOfOneGPU(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 2, func(b *dispatching, _ *Config) { b.settings.Split = true })
		b.connects(2)
		key := b.submit(strings.Replace(longBatch, "10000", "5000", 1), inTwo)
		eventually(t, func() bool { return len(b.Job(key).Parts) == 1 }, deadline, 10*time.Millisecond)
		part := b.Job(key).Parts[0]
		b.runs(part)
		b.set(func(s *Settings) { s.ContactTimeout = time.Second })
		b.at(key).Kill()
		b.lost(key)
		name := b.addOther() // the only idle one
		j := b.reaches(key, job.Done)
		require.Len(t, j.Lost, 1)
		require.Equal(t, name, j.Run.Instance)
		require.True(t, j.Whole)
		require.Equal(t, 2, strings.Count(string(b.entry(key).Outputs), "ComfyUI_"))
		b.leaves(part)
	})
}
