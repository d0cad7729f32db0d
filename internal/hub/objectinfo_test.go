package hub_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// shelf is an instance whose model folders a test fills. Its front counts the
// hub's questions about classes.
type shelf struct {
	*instance
	front *httptest.Server
	// whole and parts count GET /object_info and /object_info/{class}.
	whole, parts atomic.Int64
	// hold blocks answers about classes until it is closed, unless it is nil.
	hold atomic.Pointer[chan struct{}]
}

func newShelf(t *testing.T, c sim.Config) *shelf {
	t.Helper()
	if c.Models == nil {
		c.Models = map[string][]string{"checkpoints": {"c.safetensors"}}
	}
	s := &shelf{instance: newInstance(t, c)}
	s.front = simtest.Front(t, s.url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
		name, info := strings.CutPrefix(r.URL.Path, "/object_info")
		if hold := s.hold.Load(); info && hold != nil {
			select {
			case <-*hold:
			case <-r.Context().Done():
				return
			}
		}
		switch {
		case info && name == "":
			s.whole.Add(1)
		case info:
			s.parts.Add(1)
		}
		rest.ServeHTTP(w, r)
	})
	return s
}

// put makes a model file appear.
func (s *shelf) put(folder, name string) string {
	s.t.Helper()
	full := filepath.Join(s.Dir(), "models", folder, name)
	require.NoError(s.t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(s.t, os.WriteFile(full, nil, 0o644))
	return full
}

// newShelves starts a hub in front of shelves. What it knows of them does not age,
// so it asks only where a test gives it a reason.
func newShelves(t *testing.T, shelves []*shelf, change ...func(*bench)) *bench {
	t.Helper()
	return newBench(t, 0, append([]func(*bench){func(b *bench) {
		b.settings.CatalogAge = time.Hour
		for _, s := range shelves {
			b.settings.Instances = append(b.settings.Instances, s.front.URL)
		}
	}}, change...)...)
}

// withLora is a graph that needs a LoRA.
func withLora(name string) string {
	return fmt.Sprintf(`{"1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "c.safetensors"}},
		"2": {"class_type": "LoraLoaderModelOnly", "inputs": {"model": ["1", 0], "lora_name": %q, "strength_model": 1}},
		"3": {"class_type": "PreviewAny", "inputs": {"source": ["2", 0]}}}`, name)
}

// lists waits until /object_info lists a model. On a busy machine an instance may
// answer later than a client waits for it.
func (b *bench) lists(name string) {
	b.t.Helper()
	eventually(b.t, func() bool {
		_, body := b.get("/object_info")
		return strings.Contains(string(body), name)
	}, time.Minute, 20*time.Millisecond)
}

// taken posts a graph until it is accepted, for the same reason as lists.
func (b *bench) taken(graph string) (id string) {
	b.t.Helper()
	eventually(b.t, func() bool {
		status, answer := b.try(graph)
		if status != http.StatusOK {
			return false
		}
		_, rest, _ := strings.Cut(answer, `"prompt_id": "`)
		id, _, _ = strings.Cut(rest, `"`)
		return true
	}, time.Minute, 500*time.Millisecond)
	return id
}

func (b *bench) try(graph string) (int, string) {
	b.t.Helper()
	status, answer := b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "ann"}`, graph))
	return status, string(answer)
}

// A file is copied to one of two instances, which is at work and so has not been
// asked for a while. The hub knows the file when the next prompt names it: the
// prompt goes there, and all listings of the hub agree.
func TestNewModelIsKnownAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shelves := []*shelf{newShelf(t, sim.Config{}), newShelf(t, sim.Config{})}
		b := newShelves(t, shelves)
		for n := range shelves {
			b.submit(endless(n), fmt.Sprint("busy", n))
		}
		eventually(t, func() bool { return shelves[0].Started()+shelves[1].Started() == 2 }, time.Minute, 5*time.Millisecond)
		answer := answered(b.try(withLora("new.safetensors")))(t, http.StatusBadRequest)
		require.Contains(t, answer, "value_not_in_list")

		shelves[1].put("loras", "new.safetensors")
		id := b.taken(withLora("new.safetensors"))
		for _, path := range []string{"/models/loras", "/object_info/LoraLoaderModelOnly", "/object_info", "/object_info/LoraLoader"} {
			// On a busy machine an instance may answer later than a client waits for it.
			began, asked := time.Now(), time.Now()
			for !strings.Contains(b.text(path), "new.safetensors") {
				require.Greater(t, time.Since(asked), 300*time.Millisecond, "%s lacks it, and has waited for nobody", path)
				require.Less(t, time.Since(began), time.Minute, path)
				asked = time.Now()
			}
		}
		for n := range shelves {
			b.posts("/interrupt?clientId="+fmt.Sprint("busy", n), "")
		}
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.Equal(t, 2, shelves[1].Started(), "it ran where the file is")
	})
}

// A model that is new to one class is new to all classes that list its folder,
// however recent the answers about them are.
func TestOtherClassesOfANewModel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newShelf(t, sim.Config{})
		b := newShelves(t, []*shelf{s})
		b.connected(1)
		s.put("loras", "new.safetensors")
		require.NotContains(t, b.text("/object_info/LoraLoader"), "new.safetensors", "what is known is young enough")
		b.taken(withLora("new.safetensors"))
		listed := func() bool { return strings.Contains(b.text("/object_info/LoraLoader"), "new.safetensors") }
		eventually(t, listed, time.Minute, 20*time.Millisecond)
		asked := s.parts.Load()
		for range 3 {
			require.True(t, listed())
		}
		require.Equal(t, asked, s.parts.Load(), "now it is young enough again")
	})
}

// A class of a node pack may check its inputs itself, so the hub alone does not refuse a value that
// is in no list. It still reads the lists again, so that the prompt goes where the file is. It does
// not do so every time, because many values are never listed.
func TestListsThatNeverHaveTheValue(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		v, err := pyjson.Parse([]byte(`{"input": {"required": {"image": ["IMAGE"], "model": [["a.pth"]]}}, "output": ["IMAGE"], "output_name": ["IMAGE"],
			"output_node": false, "name": "PackUpscale", "display_name": "PackUpscale", "category": "pack", "python_module": "custom_nodes.pack"}`))
		require.NoError(t, err)
		pack := func(models string) *shelf {
			o := pyjson.Clone(v).(*pyjson.Object)
			o.Object("input").Object("required").Set("model", pyjson.Array{pyjson.Strings(strings.Fields(models))})
			return newShelf(t, sim.Config{CustomClasses: map[string]*pyjson.Object{"PackUpscale": o}})
		}
		shelves := []*shelf{pack("a.pth"), pack("a.pth")}
		b := newShelves(t, shelves)
		graph := func(n int) string {
			return fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": %d}},
				"2": {"class_type": "PackUpscale", "inputs": {"image": ["1", 0], "model": "own.pth"}},
				"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "a"}}}`, n)
		}
		began := time.Now()
		for n := range 20 {
			b.try(graph(n))
			answered(b.try(withLora(fmt.Sprint("no", n, ".safetensors"))))(t, http.StatusBadRequest)
		}
		may := 10 + int64(time.Since(began)/time.Second) + 1
		for _, s := range shelves {
			require.Positive(t, s.parts.Load())
			require.LessOrEqual(t, s.parts.Load(), may, "a list that never has the value is not asked for each time, nor for names that nobody has")
		}
	})
}

// However many clients ask at the same moment, an instance is asked once, and only if what is known
// of it is older than catalog_age, or a client has posted something to it: anything can be the upload
// of a model.
func TestRefreshKeysAreOneQuestion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newShelf(t, sim.Config{})
		b := newShelves(t, []*shelf{s})
		before := s.whole.Load()
		s.put("loras", "new.safetensors")
		require.NotContains(t, b.text("/object_info"), "new.safetensors")
		require.Equal(t, before, s.whole.Load(), "what is known is young enough")
		b.post("/pack/upload/model", "{}")
		var wait sync.WaitGroup
		for range 100 {
			wait.Go(func() { b.gets("/object_info") })
		}
		wait.Wait()
		b.lists("new.safetensors")
		require.Equal(t, before+1, s.whole.Load())

		b.settings.CatalogAge = time.Nanosecond
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		s.put("loras", "newer.safetensors")
		b.lists("newer.safetensors")
	})
}

// nameOf returns the name of a shelf in the fleet.
func nameOf(b *bench, s *shelf) string {
	for _, i := range b.hub.Fleet.Instances() {
		if i.URL == s.front.URL {
			return i.Name
		}
	}
	return ""
}

// An instance that does not answer delays a refusal but does not prevent it. Later
// requests do not wait for it as long.
func TestSilentInstanceDelaysNoRefusal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shelves := []*shelf{newShelf(t, sim.Config{}), newShelf(t, sim.Config{})}
		b := newShelves(t, shelves)
		hold := make(chan struct{})
		shelves[0].hold.Store(&hold)
		for range 3 {
			answer := answered(b.try(withLora("no.safetensors")))(t, http.StatusBadRequest)
			require.Contains(t, answer, "value_not_in_list")
		}
		shelves[1].put("loras", "new.safetensors")
		b.taken(withLora("new.safetensors"))
		b.hub.Dispatch.Discovery.Doubt(b.hub.Clients.ByName(nameOf(b, shelves[0])))
		b.lists("new.safetensors")
		shelves[0].put("loras", "other.safetensors")
		close(hold)
		b.taken(withLora("other.safetensors"))
	})
}

// A deleted model is refused by the instance that had it, and then by the hub.
func TestDeletedModelIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newShelf(t, sim.Config{})
		full := s.put("loras", "old.safetensors")
		b := newShelves(t, []*shelf{s})
		require.NoError(t, os.Remove(full))
		id := b.submit(withLora("old.safetensors"), "ann")
		require.Equal(t, "error", b.finished(id).Status.Text)
		eventually(t, func() bool { status, _ := b.try(withLora("old.safetensors")); return status == http.StatusBadRequest },
			time.Minute, 20*time.Millisecond)
	})
}

// A prompt that waits for a model runs when the agent reports that the model
// folders of another instance have changed.
func TestWaitingPromptGetsItsModel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shelves := []*shelf{newShelf(t, sim.Config{}), newShelf(t, sim.Config{})}
		shelves[0].put("loras", "new.safetensors")
		b := newShelves(t, shelves)
		shelves[0].die()
		b.connected(1)
		id := b.submit(withLora("new.safetensors"), "ann")
		_, ended := b.history(id)
		require.False(t, ended)
		shelves[1].put("loras", "new.safetensors")
		b.hub.Dispatch.Discovery.Relearn(nameOf(b, shelves[1]))
		require.Equal(t, "success", b.finished(id).Status.Text)
	})
}
