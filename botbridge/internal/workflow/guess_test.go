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

// public returns a command of a workflow that many people have, as ComfyUI exports it.
func public(t testing.TB, name string, spec Spec) *Command {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join("testdata", "public", name+".json")))(t)
	return must.Get(NewCommand(name, spec, data))(t)
}

// bound returns what sets what: "57:27.text, 57:28.text".
func bound(c *Command) map[string]string {
	got := map[string]string{}
	add := func(name string, slots []Slot) {
		var list []string
		for _, s := range slots {
			list = append(list, s.String())
		}
		if list != nil {
			got[name] = strings.Join(list, ", ")
		}
	}
	for _, r := range Roles() {
		slots, _ := c.Bindings(r)
		add(string(r), slots)
	}
	for _, a := range c.Arguments() {
		add("--"+a.Name, append([]Slot{a.Slot}, a.Also...))
	}
	return got
}

// Workflows that everybody has are bound right without a word in bot.yaml.
func TestPublicWorkflows(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]map[string]string{
		"sd15": {
			"prompt": "6.text", "negative": "7.text", "seed": "3.seed", "steps": "3.steps", "size": "5.width, 5.height", "count": "5.batch_size",
			"model": "4.ckpt_name", "--cfg": "3.cfg", "--sampler": "3.sampler_name", "--scheduler": "3.scheduler",
		},
		"sdxl_refiner": {
			"prompt": "6.text, 15.text", "negative": "7.text, 16.text", "seed": "10.noise_seed, 11.noise_seed", "steps": "10.steps, 11.steps",
			"size": "5.width, 5.height", "count": "5.batch_size", "model": "4.ckpt_name",
			"--cfg": "10.cfg, 11.cfg", "--sampler": "10.sampler_name, 11.sampler_name", "--scheduler": "10.scheduler, 11.scheduler",
		},
		"flux": {
			"prompt": "6.text", "seed": "25.noise_seed", "steps": "17.steps", "size": "27.width, 27.height, 30.width, 30.height", "count": "27.batch_size",
			"model": "12.unet_name", "--sampler": "16.sampler_name", "--scheduler": "17.scheduler", "--guidance": "26.guidance",
		},
		"z_image": {
			"prompt": "57:27.text", "seed": "57:3.seed", "steps": "57:3.steps", "size": "57:13.width, 57:13.height", "count": "57:13.batch_size",
			"model": "57:28.unet_name", "--cfg": "57:3.cfg", "--sampler": "57:3.sampler_name", "--scheduler": "57:3.scheduler", "--shift": "57:11.shift",
		},
		"wan22": {
			"prompt": "128:89.text", "negative": "128:72.text", "seed": "128:81.noise_seed, 128:78.noise_seed", "steps": "128:114.value",
			"size": "128:74.width, 128:74.height", "count": "128:74.batch_size", "model": "128:75.unet_name",
			"--cfg": "128:116.value", "--sampler": "128:78.sampler_name, 128:81.sampler_name", "--scheduler": "128:78.scheduler, 128:81.scheduler",
			"--shift": "128:82.shift", "--shift2": "128:86.shift", "--fps": "128:125.value", "--lora": "128:83.lora_name", "--lora2": "128:85.lora_name",
			"--lora_strength": "128:83.strength_model", "--lora_strength2": "128:85.strength_model",
		},
		"qwen_edit": {
			"prompt": "170:151.prompt", "negative": "170:149.prompt", "image": "83.image, 41.image", "seed": "170:169.seed", "steps": "170:165.value",
			"strength": "170:169.denoise", "model": "170:161.unet_name", "--cfg": "170:155.value", "--sampler": "170:169.sampler_name",
			"--scheduler": "170:169.scheduler", "--shift": "170:145.shift", "--lora": "170:153.lora_name", "--lora_strength": "170:153.strength_model",
		},
		"rgthree": {
			"prompt": "22.value", "negative": "7.text", "seed": "20.seed", "steps": "3.steps", "size": "21.value, 5.height", "count": "5.batch_size",
			"model": "4.ckpt_name", "--cfg": "3.cfg", "--sampler": "3.sampler_name", "--scheduler": "3.scheduler",
		},
	} {
		c := public(t, name, Spec{})
		require.Equal(t, want, bound(c), name)
		require.Empty(t, c.Notes(), name)
	}
}

// What a message sets reaches all samplers, and the step at which one hands over to the next
// moves along.
func TestTwoSamplersAreSetTogether(t *testing.T) {
	t.Parallel()
	filled := func(name string, a Args) *Graph {
		return must.Get(ParseGraph(public(t, name, Spec{}).Fill(a, Files{Images: []string{"one.png", "two.png"}})))(t)
	}
	g := filled("sdxl_refiner", Args{Prompt: "a fox", Seed: 7, Steps: 50, Set: map[string]string{"cfg": "5"}})
	for slot, want := range map[Slot]pyjson.Value{
		{"6", "text"}: pyjson.String("a fox"), {"15", "text"}: pyjson.String("a fox"), {"10", "noise_seed"}: pyjson.Number("7"),
		{"11", "noise_seed"}: pyjson.Number("7"), {"11", "steps"}: pyjson.Number("50"), {"10", "end_at_step"}: pyjson.Number("40"),
		{"11", "start_at_step"}: pyjson.Number("40"), {"11", "end_at_step"}: pyjson.Number("10000"), {"11", "cfg"}: pyjson.Number("5"),
	} {
		require.Equal(t, want, g.literal(slot.Node, slot.Input), slot)
	}
	g = filled("wan22", Args{Steps: 30})
	require.Equal(t, pyjson.Number("30"), g.literal("128:114", "value"))
	require.Equal(t, pyjson.Number("15"), g.literal("128:115", "value"))
	g = filled("flux", Args{Width: 640, Height: 832})
	require.Equal(t, pyjson.Number("832"), g.literal("30", "height"))
	g = filled("qwen_edit", Args{})
	require.Equal(t, []pyjson.Value{pyjson.String("two.png"), pyjson.String("one.png")}, []pyjson.Value{g.literal("41", "image"), g.literal("83", "image")})
}

// bot.yaml may name several inputs, and one whose value comes from another node.
func TestSeveralInputsAreNamed(t *testing.T) {
	t.Parallel()
	c := public(t, "sdxl_refiner", Spec{Inputs: map[Role]string{Prompt: "6.text, 15.text", Seed: "10", Size: "5.width, 5.height"}})
	require.Equal(t, "6.text, 15.text", bound(c)["prompt"])
	require.Equal(t, "10.noise_seed", bound(c)["seed"])
	c = public(t, "rgthree", Spec{Inputs: map[Role]string{Seed: "3.seed", Prompt: "6.text"}})
	require.Equal(t, "20.seed", bound(c)["seed"])
	require.Equal(t, "22.value", bound(c)["prompt"])
	require.Equal(t, 2, public(t, "qwen_edit", Spec{}).Images())
	require.False(t, public(t, "qwen_edit", Spec{}).Edits())
	require.True(t, public(t, "qwen_edit", Spec{Inputs: map[Role]string{Image: "83"}}).Edits())
}

// What is not found is said, unless bot.yaml says that it is not wanted.
func TestNotesOnWhatIsNotFound(t *testing.T) {
	t.Parallel()
	file := []byte(`{"1": {"class_type": "KSampler", "inputs": {"seed": ["2", 0], "steps": 20, "model": ["3", 0]}},
		"2": {"class_type": "DiceOfSomebody", "inputs": {"sides": 6}}, "3": {"class_type": "Loader", "inputs": {}}}`)
	c := must.Get(NewCommand("x", Spec{Inputs: map[Role]string{Prompt: "-"}}, file))(t)
	require.Equal(t, []string{"no seed found: every picture will be the same; set `seed:` under inputs"}, c.Notes())
}

// A workflow whose links go in circles ends somewhere.
func TestCirclesEnd(t *testing.T) {
	t.Parallel()
	must.Get(NewCommand("x", Spec{}, []byte(`{
		"1": {"class_type": "KSampler", "inputs": {"seed": ["2", 0], "positive": ["3", 0], "latent_image": ["1", 0], "model": ["1", 0], "steps": ["2", 0]}},
		"2": {"class_type": "Reroute", "inputs": {"value": ["2", 0]}},
		"3": {"class_type": "Switch", "inputs": {"switch": ["3", 0], "on_true": ["3", 0], "on_false": ["3", 0], "text": ["3", 0]}}}`)))(t)
}

const styledGraph = `{
	"1": {"class_type": "Text", "inputs": {"text": "x"}, "_meta": {"title": "prompt"}},
	"2": {"class_type": "Text", "inputs": {"text": "y"}, "_meta": {"title": "negative"}},
	"3": {"class_type": "Sampler", "inputs": {"seed": 1, "steps": 20, "cfg": 7.5}},
	"4": {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 512, "batch_size": 1}}}`

func styledCommand(t *testing.T, styles ...Style) (*Command, map[string]error) {
	t.Helper()
	c := must.Get(NewCommand("generate", Spec{Inputs: map[Role]string{Seed: "3.seed", Steps: "3.steps"}}, []byte(styledGraph)))(t)
	return c.WithStyles(styles)
}

func TestStyles(t *testing.T) {
	t.Parallel()
	c, misfits := styledCommand(t,
		Style{Name: "film", Spec: StyleSpec{Prompt: "{prompt}, 35mm film", Negative: "cartoon", Arguments: map[string]string{"cfg": "4", "steps": "30", "ar": "2:1"}}},
		Style{Name: "pixel-art", Spec: StyleSpec{Prompt: "pixel art of {prompt}"}},
	)
	require.Empty(t, misfits)
	for text, want := range map[string][]string{
		"a fox --style film": {`"text": "a fox, 35mm film"`, `"text": "cartoon"`, `"cfg": 4`, `"steps": 30`, `"width": 720`, `"height": 360`},
		// What the message says itself counts more, and its negative words stay.
		"a fox --style Film --steps 8 --no text --size 256x256": {`"steps": 8`, `"text": "text, cartoon"`, `"width": 256`},
		"a fox --style pixelart,film":                           {`"text": "pixel art of a fox, 35mm film"`},
		"a {prompt} --style=film --style pixel_art":             {`"text": "pixel art of a {prompt}, 35mm film"`},
		"a fox":        {`"text": "a fox"`, `"text": "y"`, `"cfg": 7.5`, `"steps": 20`, `"width": 512`},
		"--style film": {`"text": "35mm film"`},
	} {
		args, err := c.Parse(text)
		require.NoError(t, err, text)
		args, err = c.Settle(args)
		require.NoError(t, err, text)
		require.NotContains(t, args.Words(), "35mm", "the words of a style are not the user's")
		graph := string(c.Fill(args, Files{}))
		for _, part := range want {
			require.Contains(t, graph, part, text)
		}
	}
	for text, key := range map[string]string{
		"a fox --style flim": "style_near", "a fox --style watercolour": "style_unknown", "a --style film,film,film,film": "style_many",
		"a fox --styel film": "flag_near", "a fox --style": "flag_value",
	} {
		args, err := c.Parse(text)
		if err == nil {
			_, err = c.Settle(args)
		}
		var complaint *Complaint
		require.ErrorAs(t, err, &complaint, text)
		require.Equal(t, key, complaint.Key, text)
	}
	args := must.Get(c.Settle(Args{Prompt: "a fox", Styles: []string{"film"}}))(t)
	require.Equal(t, "30", c.Value(Steps, args))
	require.Equal(t, "720x360", c.Value(Size, args))
}

func TestStylesThatDoNotFit(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]StyleSpec{
		"it takes no --guidance":     {Arguments: map[string]string{"guidance": "3"}},
		"a style cannot set --n":     {Arguments: map[string]string{"n": "4"}},
		"a style cannot set --seed":  {Arguments: map[string]string{"seed": "4"}},
		"it takes no --steps 900":    {Arguments: map[string]string{"steps": "900"}},
		"--size cannot be big":       {Arguments: map[string]string{"size": "big"}},
		"it takes no --model x":      {Arguments: map[string]string{"model": "x"}},
		"the style does not name it": {Negative: "x", Commands: []string{"edit"}},
	} {
		c, misfits := styledCommand(t, Style{Name: "s", Spec: spec})
		require.ErrorContains(t, misfits["s"], name)
		require.Empty(t, c.Styles())
		args, err := c.Parse("a fox --style s")
		require.Error(t, err, "there is no such flag: %v", args)
	}
	require.NotEmpty(t, StyleSpec{Prompt: "film"}.Problems())
	require.NotEmpty(t, StyleSpec{}.Problems())
	require.Empty(t, StyleSpec{Prompt: "{prompt}!"}.Problems())
}

// The fleet decides what a value may be.
func TestStylesAgainstTheFleet(t *testing.T) {
	t.Parallel()
	catalog := must.Get(ParseCatalog([]byte(`{"Sampler": {"input": {"required": {"cfg": ["FLOAT", {"min": 0, "max": 100}]}}}}`)))(t)
	for value, want := range map[string]int{"4": 0, "4.50": 0, "400": 1, "much": 1} {
		c, misfits := styledCommand(t, Style{Name: "s", Spec: StyleSpec{Arguments: map[string]string{"cfg": value}}})
		require.Empty(t, misfits)
		require.Len(t, c.styleProblems(catalog), want, value)
	}
}
