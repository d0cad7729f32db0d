package resultcache

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const sampled = `{
	"1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sd\\a.safetensors"}},
	"2": {"class_type": "CLIPTextEncode", "inputs": {"clip": ["1", 1], "text": "a cat"}},
	"3": {"class_type": "LoadImage", "inputs": {"image": "cat.png"}, "_meta": {"title": "Load"}},
	"4": {"class_type": "VAEEncode", "inputs": {"pixels": ["3", 0], "vae": ["1", 2]}},
	"5": {"class_type": "KSampler", "inputs": {"model": ["1", 0], "positive": ["2", 0], "negative": ["2", 0], "latent_image": ["4", 0], "seed": 7}},
	"6": {"class_type": "VAEDecode", "inputs": {"samples": ["5", 0], "vae": ["1", 2]}},
	"7": {"class_type": "SaveImage", "inputs": {"images": ["6", 0], "filename_prefix": "ComfyUI"}},
	"8": {"class_type": "Unneeded", "inputs": {}}
}`

// of is Of for a graph whose node 3 reads a file with some content.
func of(t *testing.T, graph, content string) (Subject, bool) {
	t.Helper()
	v := must.Get(pyjson.Parse([]byte(graph)))(t)
	return Of(v, []string{"7"}, map[string]string{"3": content})
}

func TestSubject(t *testing.T) {
	t.Parallel()
	s, ok := of(t, sampled, "abc")
	require.True(t, ok)
	require.Equal(t, []Model{{"checkpoints", "sd/a.safetensors"}}, s.Models)
	require.Equal(t, []string{"1", "2", "3", "4", "5", "6", "7"}, s.Nodes)
	read, ok := Decode(s.Encode())
	require.True(t, ok)
	require.Equal(t, s, read)

	for name, tt := range map[string]struct {
		from, to string
		same     bool
	}{
		"a title":                  {`"title": "Load"`, `"title": "Bild"`, true},
		"the order of inputs":      {`"clip": ["1", 1], "text": "a cat"`, `"text": "a cat", "clip": ["1", 1]`, true},
		"a node nobody needs":      {`"Unneeded"`, `"Other"`, true},
		"the text":                 {"a cat", "a dog", false},
		"the seed":                 {`"seed": 7`, `"seed": 8`, false},
		"the model":                {"a.safetensors", "b.safetensors", false},
		"the name of the file":     {`"ComfyUI"`, `"cat"`, false},
		"an input by another name": {"cat.png", "[a] dog.png", true},
		"a link":                   {`"negative": ["2", 0]`, `"negative": ["2", 1]`, false},
	} {
		other, ok := of(t, strings.Replace(sampled, tt.from, tt.to, 1), "abc")
		require.True(t, ok, name)
		require.Equal(t, tt.same, other.Key == s.Key, name)
	}
	other, _ := of(t, sampled, "other content")
	require.NotEqual(t, s.Key, other.Key)
}

func TestSubjectsThatNobodyKnows(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ from, to, content string }{
		"an unknown class":          {"VAEDecode", "MyDecode", "abc"},
		"a file that is not pinned": {"cat.png", "cat.png", ""},
		"a model by a link":         {`"sd\\a.safetensors"`, `["2", 0]`, "abc"},
		"an embedding":              {"a cat", "a cat, embedding:bad", "abc"},
		"a date":                    {`"ComfyUI"`, `"%year%"`, "abc"},
		"noise from nowhere":        {`"KSampler", "inputs": {`, `"KSamplerAdvanced", "inputs": {"add_noise": "disable", `, "abc"},
		"a missing node":            {`["4", 0]`, `["99", 0]`, "abc"},
	} {
		_, ok := of(t, strings.Replace(sampled, tt.from, tt.to, 1), tt.content)
		require.False(t, ok, name)
	}
}

func TestStamp(t *testing.T) {
	t.Parallel()
	s, _ := of(t, sampled, "abc")
	stamp := func(listing string, err error) (string, error) {
		return s.Stamp(context.Background(), func(_ context.Context, path string) ([]byte, error) {
			require.Equal(t, "/experiment/models/checkpoints", path)
			return []byte(listing), err
		})
	}
	one := must.Get(stamp(`[{"name": "sd\\a.safetensors", "pathIndex": 0, "modified": 1750000000.25, "size": 42}]`, nil))(t)
	for _, changed := range []string{
		`[{"name": "sd/a.safetensors", "modified": 1750000001.25, "size": 42}]`, `[{"name": "sd/a.safetensors", "modified": 1750000000.25, "size": 43}]`,
	} {
		other := must.Get(stamp(changed, nil))(t)
		require.NotEqual(t, one, other)
	}
	same, err := stamp(`[{"name": "b"}, {"name": "sd/a.safetensors", "modified": 1750000000.25, "size": 42}, {"name": "sd/a.safetensors", "modified": 1, "size": 1}]`, nil)
	require.NoError(t, err)
	require.Equal(t, one, same, "the first folder's file is the one that is loaded")
	for _, listing := range []string{`[]`, `{`, `[{"name": "sd/a.safetensors"}]`} {
		_, err := stamp(listing, nil)
		require.ErrorIs(t, err, ErrUnknown, listing)
	}
	away := errors.New("away")
	_, err = stamp("", away)
	require.ErrorIs(t, err, away)
}

func FuzzOf(f *testing.F) {
	f.Add(sampled, "7")
	f.Add(`{"1": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "a"}}}`, "1")
	f.Add(`{"1": []}`, "1")
	f.Fuzz(func(t *testing.T, graph, output string) {
		v, err := pyjson.Parse([]byte(graph))
		if err != nil {
			return
		}
		s, ok := Of(v, []string{output}, nil)
		if again, same := Of(v, []string{output}, nil); same != ok || again.Key != s.Key {
			t.Error("the same prompt is two subjects")
		}
		if ok && len(s.Nodes) == 0 {
			t.Error("a result of nothing")
		}
	})
}
