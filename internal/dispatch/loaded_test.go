package dispatch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// withModel submits a job that loads a model, for a client of its own.
func withModel(model string) func(*queue.Submission) {
	return func(s *queue.Submission) {
		r := catalog.Requirements{Classes: []string{"EmptyImage"}, Choices: []catalog.Choice{{Class: "Loader", Input: "name", Value: model}}}
		s.Class, s.Body.Requires = r.Signature(), r.Encode()
		s.Client, s.Caller = s.Key, s.Key
	}
}

// haveModels gives the models a.safetensors and b.safetensors to all instances.
func (b *dispatching) haveModels() {
	b.t.Helper()
	info := must(catalog.Parse([]byte(`{"EmptyImage": {"input": {"required": {}}}, "SaveImage": {"input": {"required": {}}},
		"Loader": {"input": {"required": {"name": [["a.safetensors", "b.safetensors"]]}}}}`)))
	b.connects(len(b.instances))
	for _, conn := range b.Instances.Open() {
		conn.SetInfo(info)
	}
}

// What an instance has loaded is known from what ran there, and unknown once it was told to unload
// or its connection was lost.
func TestWarmInstanceIsPreferred(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 2)
		b.haveModels()
		where := func(model string) string {
			key := b.submit(picture, withModel(model))
			instance := b.reaches(key, job.Done).Run.Instance
			b.leaves(key)
			return instance
		}
		a := where("a.safetensors")
		other := where("b.safetensors")
		require.NotEqual(t, a, other, "an empty instance is used before models are dropped")
		for range 3 {
			require.Equal(t, other, where("b.safetensors"))
			require.Equal(t, a, where("a.safetensors"))
		}
		require.Contains(t, b.logged(), `why="its models are loaded"`)

		for _, client := range b.Instances.Clients() {
			b.Instances.Unloaded(client)
		}
		for _, conn := range b.Instances.Open() {
			i, _, ok := conn.Idle()
			require.True(t, ok)
			require.Empty(t, i.Loaded)
		}
	})
}
