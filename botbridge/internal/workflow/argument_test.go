package workflow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// studio is a workflow with inputs of all kinds, and studioInfo what the fleet says of
// them, in the forms of ComfyUI's object_info.
const (
	studio = `{
		"1": {"class_type": "KSampler", "inputs": {"seed": 5, "steps": 20, "cfg": 8, "sampler_name": "euler", "denoise": 1, "positive": ["2", 0]}},
		"2": {"class_type": "CLIPTextEncode", "inputs": {"text": "a fox"}},
		"3": {"class_type": "LoraLoader", "inputs": {"lora_name": "film.safetensors", "strength_model": 1.0, "strength_clip": ["1", 0]}},
		"4": {"class_type": "LoadImage", "inputs": {"image": "x.png"}, "_meta": {"title": "Pose"}},
		"5": {"class_type": "SaveImage", "inputs": {"filename_prefix": "out", "tiling": false, "length": 16, "words": "hello"}},
		"6": {"class_type": "KSampler", "inputs": {"cfg": 3.5}}}`
	studioInfo = `{
		"KSampler": {"input": {"required": {"cfg": ["FLOAT", {"min": 0.0, "max": 100.0}], "denoise": ["FLOAT", {"min": 0, "max": 1}],
			"sampler_name": [["euler", "euler_ancestral", "dpmpp_2m", "dpmpp_2m_sde"]]}}},
		"LoraLoader": {"input": {"required": {"lora_name": ["COMBO", {"options": ["film.safetensors", "sub/ink.safetensors"]}],
			"strength_model": ["FLOAT", {"min": -100, "max": 100}]}}},
		"LoadImage": {"input": {"required": {"image": [["x.png", "secret.png"], {"image_upload": true}]}}},
		"SaveImage": {"input": {"required": {"filename_prefix": ["STRING", {}], "words": ["STRING", {}], "tiling": ["BOOLEAN", {}],
			"length": ["INT", {"min": 1, "max": 16384}]}}}}`
)

func studioOf(t testing.TB, arguments map[string]ArgumentSpec) (*Command, *Catalog) {
	t.Helper()
	c := must.Get(NewCommand("studio", Spec{Arguments: arguments, Inputs: map[Role]string{Image: "-"}}, []byte(studio)))(t)
	return c, must.Get(ParseCatalog([]byte(studioInfo)))(t)
}

func names(c *Command) string {
	var list []string
	for _, a := range c.Arguments() {
		list = append(list, a.Name)
	}
	return strings.Join(list, " ")
}

func TestWhichArgumentsThereAre(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		declared map[string]ArgumentSpec
		want     string
	}{
		"the usual ones":     {nil, "cfg sampler lora lora_strength cfg2"},
		"none":               {map[string]ArgumentSpec{"*": {Input: "-"}}, ""},
		"a list":             {map[string]ArgumentSpec{"*": {Input: "-"}, "cfg": {Input: "6.cfg"}}, "cfg"},
		"one is forbidden":   {map[string]ArgumentSpec{"lora": {Input: "-"}, "strength_model": {Input: "-"}}, "cfg sampler cfg2"},
		"another name":       {map[string]ArgumentSpec{"guide": {Input: "KSampler.cfg"}}, ""},
		"all but costly":     {map[string]ArgumentSpec{"*": {Input: "all"}}, "cfg sampler lora lora_strength tiling words cfg2"},
		"costly with a max":  {map[string]ArgumentSpec{"*": {Input: "-"}, "frames": {Input: "5.length", Max: new(81.0)}}, "frames"},
		"costly without one": {map[string]ArgumentSpec{"frames": {Input: "5.length"}}, ""},
		"a link":             {map[string]ArgumentSpec{"x": {Input: "3.strength_clip"}}, ""},
		"no such input":      {map[string]ArgumentSpec{"x": {Input: "3.nothing"}}, ""},
		"no such node":       {map[string]ArgumentSpec{"x": {Input: "9.cfg"}}, ""},
		"set by a role":      {map[string]ArgumentSpec{"words": {Input: "2.text"}}, ""},
		"a flag of all":      {map[string]ArgumentSpec{"seed": {Input: "1.cfg"}}, ""},
		"a typo in a ban":    {map[string]ArgumentSpec{"lroa": {Input: "-"}}, ""},
		"odd others":         {map[string]ArgumentSpec{"*": {Input: "some"}}, ""},
		"no name of a flag":  {map[string]ArgumentSpec{"Größe": {Input: "1.cfg"}}, ""},
	} {
		command, err := NewCommand("studio", Spec{Arguments: c.declared}, []byte(studio))
		if c.want == "" && name != "none" {
			require.Error(t, err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.want, names(command), name)
	}
	guarded := must.Get(NewCommand("x", Spec{Inputs: map[Role]string{Seed: "-"}, Arguments: map[string]ArgumentSpec{"*": {Input: "all"}}}, []byte(studio)))(t)
	require.NotContains(t, names(guarded), "seed", "what is never set by a message is no argument either")
}

func TestAdjust(t *testing.T) {
	t.Parallel()
	c, catalog := studioOf(t, map[string]ArgumentSpec{
		"*": {Input: "all"}, "frames": {Input: "5.length", Min: new(8.0), Max: new(81.0)}, "pose": {Input: "Pose.image"},
		"look": {Input: "3.lora_name", Choices: []string{"sub/ink.safetensors", "gone.safetensors"}}, "say": {Input: "5.words"},
	})
	for text, want := range map[string]map[string]string{
		"fox --cfg 4":                                {"cfg": "4"},
		"fox --cfg 4,5 --cfg2=0":                     {"cfg": "4.5", "cfg2": "0"},
		"--sampler dpmpp_2m fox":                     {"sampler": "dpmpp_2m"},
		"fox --sampler_name DPMPP-2M":                {"sampler": "dpmpp_2m"},
		"fox --lora_strength -1.5":                   {"lora_strength": "-1.5"},
		"fox --look subink":                          {"look": "sub/ink.safetensors"},
		"fox --frames 81":                            {"frames": "81"},
		"fox --tiling red":                           {"tiling": "true"},
		"fox --tiling off":                           {"tiling": "false"},
		`fox --say "two words" --tiling`:             {"say": "two words", "tiling": "true"},
		"fox":                                        nil,
		"fox —cfg 7 —sampler euler":                  {"cfg": "7", "sampler": "euler"},
		"fox --cfg 1e1":                              {"cfg": "10"},
		"fox --say " + strings.Repeat("x", maxWords): {"say": strings.Repeat("x", maxWords)},
	} {
		a, err := c.Parse(text)
		require.NoError(t, err, text)
		a, err = c.Adjust(a, catalog)
		require.NoError(t, err, text)
		require.Equal(t, want, a.Set, text)
	}
	for text, want := range map[string]string{
		"--cfg 101": "arg_range", "--cfg -1": "arg_range", "--cfg NaN": "arg_range", "--cfg Inf": "arg_range", "--cfg 1e999": "arg_range",
		"--cfg x": "arg_range", "--cfg": "flag_value", "--frames 82": "arg_range", "--frames 7": "arg_range", "--frames 8.5": "arg_whole",
		"--frames 99999999999999999999": "arg_range", "--sampler dpmp_2n": "arg_near", "--sampler quantum": "arg_choice",
		"--look film.safetensors": "arg_choice", "--look gone.safetensors": "arg_choice", "--look ../../etc/passwd": "arg_choice", "--tiling=maybe": "arg_switch",
		"--say " + strings.Repeat("x", maxWords+1): "too_long", "--smapler euler": "flag_near", "--nothing_like_it 5": "flag_unknown",
		"--pose secret.png": "flag_unknown", "--filename_prefix ../x": "flag_unknown", "--positive 5": "flag_unknown", "--length 9": "",
		"--1.cfg 5": "-", "--ckpt_name x": "flag_unknown",
	} {
		a, err := c.Parse("fox " + text)
		if err == nil {
			a, err = c.Adjust(a, catalog)
		}
		if want == "-" || want == "" {
			require.NoError(t, err, text)
			continue
		}
		var complaint *Complaint
		require.ErrorAs(t, err, &complaint, text)
		require.Equal(t, want, complaint.Key, text)
		_ = a
	}

	// What nobody has said is not guessed.
	_, err := c.Adjust(Args{Set: map[string]string{"cfg": "4"}}, nil)
	var complaint *Complaint
	require.ErrorAs(t, err, &complaint)
	require.Equal(t, "arg_unasked", complaint.Key)
	a, err := c.Adjust(Args{Set: map[string]string{"frames": "9", "look": "ink", "tiling": "on"}}, nil)
	require.ErrorAs(t, err, &complaint, "%v", a)
	a, err = c.Adjust(Args{Set: map[string]string{"frames": "9", "look": "sub ink", "tiling": "on"}}, nil)
	require.NoError(t, err, "bot.yaml says what these may be")
	require.Equal(t, map[string]string{"frames": "9", "look": "sub/ink.safetensors", "tiling": "true"}, a.Set)
}

func TestFillArguments(t *testing.T) {
	t.Parallel()
	c, _ := studioOf(t, map[string]ArgumentSpec{"*": {Input: "all"}, "frames": {Input: "5.length", Max: new(81.0)}})
	g := must.Get(ParseGraph(c.Fill(Args{Set: map[string]string{
		"cfg": "4.5", "sampler": `"]}`, "tiling": "true", "frames": "9", "cfg2": "1]", "nothing": "5", "lora_strength": "NaN",
	}}, Files{})))(t)
	for slot, want := range map[Slot]pyjson.Value{
		{"1", "cfg"}: pyjson.Number("4.5"), {"1", "sampler_name"}: pyjson.String(`"]}`), {"5", "tiling"}: pyjson.Bool(true),
		{"5", "length"}: pyjson.Number("9"), {"6", "cfg"}: pyjson.Number("3.5"), {"3", "strength_model"}: pyjson.Number("1.0"),
	} {
		require.Equal(t, want, g.literal(slot.Node, slot.Input), slot.String())
	}
	require.Equal(t, "1", g.linked("3", "strength_clip"), "links stay")
}

func TestCheckOfArguments(t *testing.T) {
	t.Parallel()
	c, catalog := studioOf(t, map[string]ArgumentSpec{
		"cfg": {Input: "1.cfg", Max: new(500.0)}, "pose": {Input: "Pose.image"}, "poses": {Input: "5.filename_prefix"},
		"look": {Input: "3.lora_name", Choices: []string{"sub/ink.safetensors", "gone.safetensors"}}, "name": {Input: "1.sampler_name", Min: new(1.0)},
	})
	require.Equal(t, []string{
		`arguments: cfg: "cfg" takes 0 to 100, not 500`,
		`arguments: look: no instance offers "gone.safetensors"`,
		`arguments: name: "sampler_name" is no number, so that it has no min and max`,
		`arguments: pose: "image" it names a file or a folder: list its choices`,
		`arguments: poses: "filename_prefix" it names a file or a folder: list its choices`,
	}, c.argumentProblems(catalog))
}

func TestNearest(t *testing.T) {
	t.Parallel()
	list := []string{"euler", "euler_ancestral", "dpmpp_2m", "heun"}
	for wrong, want := range map[string]string{
		"eulr": "euler", "uelr": "euler", "dpm2m": "dpmpp_2m", "ancestral": "euler_ancestral", "": "", "x": "", "Huen": "heun", strings.Repeat("e", 1000): "",
	} {
		require.Equal(t, want, Nearest(wrong, list), wrong)
	}
}

func FuzzArguments(f *testing.F) {
	f.Add("fox --cfg 4 --sampler euler --tiling --look ink --say x")
	f.Add("--cfg 1e5 --frames 0x10 --pose ../x")
	f.Fuzz(func(t *testing.T, text string) {
		c, catalog := studioOf(t, map[string]ArgumentSpec{"*": {Input: "all"}, "frames": {Input: "5.length", Max: new(81.0)}, "say": {Input: "5.words"}})
		a, err := c.Parse(text)
		if err != nil {
			return
		}
		if a, err = c.Adjust(a, catalog); err != nil {
			return
		}
		g := must.Get(ParseGraph(c.Fill(a, Files{})))(t)
		cfg, _ := g.literal("1", "cfg").(pyjson.Number)
		require.True(t, cfg.Float64() >= 0 && cfg.Float64() <= 100, string(cfg))
		sampler, _ := g.literal("1", "sampler_name").(pyjson.String)
		require.Contains(t, []string{"euler", "euler_ancestral", "dpmpp_2m", "dpmpp_2m_sde"}, string(sampler))
		require.Equal(t, pyjson.String("x.png"), g.literal("4", "image"))
		require.Equal(t, pyjson.String("out"), g.literal("5", "filename_prefix"))
	})
}

func TestStage(t *testing.T) {
	t.Parallel()
	command := func(classes ...string) *Command {
		graph := "{"
		for i, class := range classes {
			graph += fmt.Sprintf(`"%d": {"class_type": %q, "inputs": {}, "_meta": {"title": "x"}},`, i+1, class)
		}
		return must.Get(NewCommand("c", Spec{}, []byte(graph[:len(graph)-1]+"}")))(t)
	}
	for class, want := range map[string]Stage{
		"CheckpointLoaderSimple": Loading, "UNETLoader": Loading, "LoraLoaderModelOnly": Loading, "LoadImage": Looking, "VAEEncode": Looking,
		"CLIPTextEncode": Reading, "FluxGuidance": Reading, "KSampler": Painting, "SamplerCustomAdvanced": Painting, "KSamplerSelect": Working,
		"VAEDecodeTiled": Finishing, "SaveImage": Finishing, "PreviewAny": Finishing, "ImageUpscaleWithModel": Enlarging, "EmptyLatentImage": Working,
		"UpscaleModelLoader": Loading,
	} {
		require.Equal(t, want, command(class, "SaveImage").Stage("1"), class)
	}
	require.Equal(t, Working, command("KSampler").Stage("no node"))
	require.Equal(t, Filming, command("KSampler", "SaveVideo").Stage("1"))
	require.Equal(t, Composing, command("KSampler", "SaveAudioMP3").Stage("1"))
	for product, classes := range map[Product][]string{
		Pictures: {"SaveImage", "PreviewAny"}, Films: {"SaveImage", "VHS_VideoCombine"}, Sounds: {"SaveAudio"}, Sentences: {"LoadImage", "PreviewAny"},
	} {
		require.Equal(t, product, command(classes...).Makes())
	}
}
