package workflow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func example(t testing.TB, name string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(filepath.Join("..", "..", "..", "examples", "bot", name)))(t)
}

func TestGuesses(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]map[Role]string{
		"generate.json": {
			Prompt: "6.text", Negative: "7.text", Seed: "3.seed", Steps: "3.steps", Size: "5.width", Count: "5.batch_size", Model: "4.ckpt_name",
		},
		"edit.json": {
			Prompt: "6.text", Negative: "7.text", Seed: "3.seed", Steps: "3.steps", Image: "1.image", Strength: "3.denoise", Model: "4.ckpt_name",
		},
		"upscale.json": {Image: "1.image"},
		"poster.json":  {Size: "1.width", Count: "1.batch_size"},
	} {
		c := must.Get(NewCommand("x", Spec{}, example(t, file)))(t)
		got := map[Role]string{}
		for _, r := range Roles() {
			if slots, guessed := c.Bindings(r); len(slots) > 0 {
				require.True(t, guessed)
				got[r] = slots[0].String()
			}
		}
		require.Equal(t, want, got, file)
	}
}

func TestTextBehindOtherNodes(t *testing.T) {
	t.Parallel()
	c := must.Get(NewCommand("x", Spec{}, []byte(`{
		"a": {"class_type": "PrimitiveString", "inputs": {"value": "words"}},
		"b": {"class_type": "CLIPTextEncode", "inputs": {"text": ["a", 0]}},
		"c": {"class_type": "FluxGuidance", "inputs": {"conditioning": ["b", 0], "guidance": 3.5}},
		"d": {"class_type": "KSampler", "inputs": {"positive": ["c", 0], "negative": ["c", 0], "seed": 1}}}`)))(t)
	slots, _ := c.Bindings(Prompt)
	require.Equal(t, []Slot{{"a", "value"}}, slots)
	require.False(t, c.Takes(Negative), "one text is not both")
}

func TestBindings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"6": "6.text", "6.text": "6.text", "VAEDecode": "", "CLIPTextEncode": "", "99": "", "6.clip": "", "3.seed": "", "KSampler": "",
	} {
		c, err := NewCommand("x", Spec{Inputs: map[Role]string{Prompt: text}}, example(t, "generate.json"))
		if want == "" {
			require.Error(t, err, text)
			continue
		}
		require.NoError(t, err)
		slots, guessed := c.Bindings(Prompt)
		require.False(t, guessed)
		require.Equal(t, want, slots[0].String())
	}
	c := must.Get(NewCommand("x", Spec{Inputs: map[Role]string{Size: "5.height,5.width", Count: "-", Seed: "KSampler"}}, example(t, "generate.json")))(t)
	require.False(t, c.Takes(Count))
	slots, _ := c.Bindings(Size)
	require.Equal(t, []Slot{{"5", "height"}, {"5", "width"}}, slots)
	_, err := NewCommand("x", Spec{Inputs: map[Role]string{"colour": "5"}}, example(t, "generate.json"))
	require.ErrorContains(t, err, "colour")
}

func TestNotAWorkflow(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "[]", "{}", `{"1": {}}`, `{"1": 5}`, "\xff"} {
		_, err := ParseGraph([]byte(text))
		require.Error(t, err, text)
	}
	_, err := ParseGraph([]byte(`{"nodes": [], "links": []}`))
	require.ErrorIs(t, err, ErrNotAPI)
}

// plainCommand has no arguments of its own.
func plainCommand(t testing.TB) *Command {
	t.Helper()
	return must.Get(NewCommand("plain", Spec{}, []byte(`{"1": {"class_type": "Text", "inputs": {"text": "x"}}}`)))(t)
}

func TestParseArgs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Args{
		"a red  fox\nin snow":           {Prompt: "a red fox in snow"},
		"fox --ar 16:9 -n 4":            {Prompt: "fox", AspectW: 16, AspectH: 9, Count: 4},
		"--size 768x512 fox":            {Prompt: "fox", Width: 768, Height: 512},
		"fox --no text, frame":          {Prompt: "fox", Negative: "text, frame"},
		"fox --no text --seed 7":        {Prompt: "fox", Negative: "text", Seed: 7, SeedGiven: true},
		"fox —ar 3:2 –steps=9":          {Prompt: "fox", AspectW: 3, AspectH: 2, Steps: 9},
		"a --strength 0,5 --file":       {Prompt: "a", Strength: 0.5, AsFile: true},
		"fox -n4 --ar 16х9":             {Prompt: "fox", AspectW: 16, AspectH: 9, Count: 4},
		"fox -n=3 --size 768Х512":       {Prompt: "fox", Width: 768, Height: 512, Count: 3},
		`fox --model "my model" red`:    {Prompt: "fox red", Model: "my model"},
		"fox --model=«моя модель»":      {Prompt: "fox", Model: "моя модель"},
		`fox --model "half`:             {Prompt: "fox", Model: `"half`},
		`a sign "open" --no "text, x"`:  {Prompt: `a sign "open"`, Negative: "text, x"},
		"a -north b":                    {Prompt: "a -north b"},
		"a -- b - c":                    {Prompt: "a -- b - c"},
		"--seed 18446744073709551615 x": {Prompt: "x", Seed: 1<<64 - 1, SeedGiven: true},
	} {
		got, err := plainCommand(t).Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, key := range map[string]string{
		"--ar": "flag_value", "--ar 0:1": "flag_bad", "--ar 99:1": "too_narrow", "--size big": "flag_bad", "-n 0": "flag_bad",
		"--seed -1": "flag_bad", "--strength 2": "flag_bad", "--strength NaN": "flag_bad", "--colour red": "flag_unknown",
		"--steps 99999999999999999999": "flag_bad",
	} {
		_, err := plainCommand(t).Parse(text)
		var c *Complaint
		require.ErrorAs(t, err, &c, text)
		require.Equal(t, key, c.Key, text)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	generate := must.Get(NewCommand("generate", Spec{MaxSeed: 100, Models: []string{"a", "b"}}, example(t, "generate.json")))(t)
	upscale := must.Get(NewCommand("upscale", Spec{}, example(t, "upscale.json")))(t)

	got := must.Get(generate.Settle(Args{AspectW: 16, AspectH: 9}))(t)
	require.Equal(t, []int{680, 384}, []int{got.Width, got.Height}, "as many pixels as the workflow's own")
	require.NotZero(t, got.Seed)
	require.LessOrEqual(t, got.Seed, uint64(100))
	for key, c := range map[string]struct {
		command *Command
		args    Args
	}{
		"too_many_pictures": {generate, Args{Count: 5}},
		"too_many_steps":    {generate, Args{Steps: 61}},
		"too_large":         {generate, Args{Width: 4096, Height: 4096}},
		"seed_too_large":    {generate, Args{Seed: 101, SeedGiven: true}},
		"unknown_model":     {generate, Args{Model: "c"}},
		"not_taken_prompt":  {upscale, Args{Prompt: "fox"}},
		"not_taken_size":    {upscale, Args{AspectW: 1, AspectH: 1}},
	} {
		_, err := c.command.Settle(c.args)
		var complaint *Complaint
		require.ErrorAs(t, err, &complaint, key)
		require.Equal(t, key, complaint.Key)
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	c := must.Get(NewCommand("x", Spec{}, example(t, "generate.json")))(t)
	text := "\"]}, <b> 🦊 \\"
	filled := c.Fill(Args{Prompt: text, Seed: 1<<64 - 1, Width: 64, Height: 128}, Files{})
	g := must.Get(ParseGraph(filled))(t)
	require.Equal(t, pyjson.String(text), g.literal("6", "text"))
	require.Equal(t, pyjson.Number("18446744073709551615"), g.literal("3", "seed"))
	require.Equal(t, pyjson.Number("128"), g.literal("5", "height"))
	require.Equal(t, pyjson.Number("20"), g.literal("3", "steps"), "what is not set stays")
	again := must.Get(ParseGraph(example(t, "generate.json")))(t)
	require.Equal(t, again.literal("6", "text"), c.graph.literal("6", "text"), "the command itself stays as it is")
}

func TestCheck(t *testing.T) {
	t.Parallel()
	catalog := must.Get(ParseCatalog([]byte(`{
		"CheckpointLoaderSimple": {"input": {"required": {"ckpt_name": [["a.safetensors"]]}}, "output_node": false},
		"CLIPTextEncode": {"input": {"required": {"text": ["STRING", {}], "clip": ["CLIP"]}}, "output_node": false},
		"EmptyLatentImage": {"input": {"required": {"width": ["INT"], "height": ["INT"], "batch_size": ["INT"], "depth": ["INT"]}}, "output_node": false},
		"KSampler": {"input": {"required": {"sampler_name": ["COMBO", {"options": ["euler"]}]}}, "output_node": false},
		"SaveImage": {"input": {"required": {"images": ["IMAGE"]}}, "output_node": true}}`)))(t)
	c := must.Get(NewCommand("x", Spec{Models: []string{"a.safetensors", "z"}}, example(t, "generate.json")))(t)
	require.Equal(t, []string{
		`node 4 (CheckpointLoaderSimple): no instance offers "v1-5-pruned-emaonly-fp16.safetensors" for "ckpt_name"`,
		`node 5 (EmptyLatentImage): the input "depth" is missing`,
		`node 8: no instance has the node class VAEDecode`,
		`models: no instance has "z"`,
	}, c.Check(catalog))
}

func FuzzParseArgs(f *testing.F) {
	f.Add("a --ar 16:9 —no x -n 3")
	f.Add("--seed=5 --size 1x1 --strength ,")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := plainCommand(t).Parse(text)
		if err != nil {
			return
		}
		c := must.Get(NewCommand("x", Spec{}, []byte(`{"1": {"class_type": "EmptyX", "inputs": {"width": 1, "height": 1, "batch_size": 1, "text": ""}, "_meta": {"title": "prompt"}}}`)))(t)
		if a, err = c.Settle(a); err == nil {
			must.Get(ParseGraph(c.Fill(a, Files{})))(t)
			require.LessOrEqual(t, a.Width*a.Height, c.Spec.MaxPixels)
		}
	})
}

func FuzzParseGraph(f *testing.F) {
	f.Add(example(f, "generate.json"))
	f.Add([]byte(`{"1": {"class_type": "KSampler", "inputs": {"positive": ["1", 0]}}}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if c, err := NewCommand("x", Spec{}, data); err == nil {
			c.Fill(Args{Prompt: "x", Seed: 1}, Files{Images: []string{"y"}})
		}
	})
}

func TestCheckFindsWhatANodeDoesNotTake(t *testing.T) {
	t.Parallel()
	catalog := must.Get(ParseCatalog([]byte(`{"Sampler": {"output_node": true, "input": {"required": {
		"steps": ["INT", {"min": 1, "max": 50}], "seed": ["INT", {"min": 0, "max": 16777215}],
		"cfg": ["FLOAT", {"min": 0.0, "max": 100.0}], "level": ["INT", {"min": 0, "max": 9}]}}}}`)))(t)
	file := []byte(`{"1": {"class_type": "Sampler", "inputs": {"steps": 20, "seed": 99999999, "cfg": 250.5, "level": 1}}}`)
	problems := func(spec Spec) string {
		return strings.Join(must.Get(NewCommand("a", spec, file))(t).Check(catalog), "\n")
	}
	inputs := map[Role]string{Steps: "1.steps", Seed: "1.seed", Strength: "1.level"}
	all := problems(Spec{Inputs: inputs})
	for _, want := range []string{
		`"steps" takes 1 to 50; set max_steps`, `"seed" takes 0 to 16777215; set max_seed`, `"cfg" is 250.5, but takes 0 to 100`,
		`"level" takes whole numbers, but a strength`,
	} {
		require.Contains(t, all, want)
	}
	inputs[Strength] = "-"
	require.Equal(t, `node 1 (Sampler): "cfg" is 250.5, but takes 0 to 100`, problems(Spec{Inputs: inputs, MaxSteps: 50, MaxSeed: 9}))
}

func TestMegapixels(t *testing.T) {
	t.Parallel()
	for pixels, want := range map[int]string{
		2 << 20: "2", 1 << 20: "1", 512 * 512: "0.25", 1_000_000: "1", 1_999_999: "1.99", 768 * 768: "0.58",
	} {
		require.Equal(t, want, Megapixels(pixels))
	}
}
