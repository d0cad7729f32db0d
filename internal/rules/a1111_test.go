package rules

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/a1111"
)

// asked are the places of what is against a request, in its graph.
func asked(t *testing.T, r Rules, open []string, class, payload, options string) string {
	t.Helper()
	inputs := map[string]any{"payload": payload}
	if options != "" {
		inputs["options"] = options
	}
	nodes, err := json.Marshal(map[string]any{"1": map[string]any{"class_type": class, "inputs": inputs}})
	require.NoError(t, err)
	names := func(class, input string) []string {
		return map[string][]string{
			a1111.ClassCheckpoint + a1111.InputCheckpoint: {
				"a", "sub/a.safetensors", "sub/a.safetensors [aaaaaaaaaa]", "aaaaaaaaaa", "nsfw/b.safetensors [bbbbbbbbbb]", "nsfw_b", "b", "bbbbbbbbbb",
				"internal-secret.safetensors [cccccccccc]", "internal-secret", "cccccccccc", "deadbeef",
			},
			a1111.ClassFiles + a1111.InputLora:      {"ink.safetensors [drawing]", "nsfw/x.safetensors [harmless]"},
			a1111.ClassFiles + a1111.InputEmbedding: {"easynegative", "internal-face"},
		}[class+input]
	}
	var places []string
	for _, o := range r.Judge(Dialect{Open: open, Names: names}.Read(graph(t, string(nodes)))) {
		require.NotEmpty(t, o.Reason)
		require.NotEmpty(t, o.Kind)
		require.NotEmpty(t, o.Rule)
		require.Equal(t, "1", o.Node)
		places = append(places, strings.Join(o.Within, "."))
	}
	return strings.Join(places, " ")
}

// What A1111 does with a request is bounded as a ComfyUI's graph is, whatever words it has for
// that.
func TestRulesOfA1111(t *testing.T) {
	t.Parallel()
	sizes := Rules{Max: map[string]float64{"steps": 10, "width": 512, "height": 600, "batch": 1}}
	deny := Rules{DenyModels: []string{"internal-*", "nsfw/*", "hidden.safetensors"}}
	allow := Rules{AllowModels: []string{"sub/a*", "ink*", "easy*"}}
	const named = `"override_settings": {"sd_model_checkpoint": "a"}, `
	for name, c := range map[string]struct {
		rules         Rules
		payload, want string
	}{
		"no rules":                    {Rules{}, `{"steps": 1000, "prompt": "<lora:x:1>", "styles": ["x"], "override_settings": {"sd_vae": "x"}}`, ""},
		"within bounds":               {sizes, `{"steps": 10, "width": 512, "height": 600}`, ""},
		"the default of steps":        {sizes, `{}`, "steps"},
		"null steps":                  {sizes, `{"steps": null}`, "steps"},
		"too many steps":              {sizes, `{"steps": "11"}`, "steps"},
		"steps of no number":          {sizes, `{"steps": [1]}`, "steps"},
		"the default of the width":    {Rules{Max: map[string]float64{"width": 500}}, `{}`, "width"},
		"too wide, too high":          {sizes, `{"steps": 1, "width": 513, "height": 601.5}`, "width height"},
		"noise that is too wide":      {sizes, `{"steps": 1, "seed_resize_from_w": 4096}`, "seed_resize_from_w"},
		"a batch":                     {sizes, `{"steps": 1, "batch_size": 2}`, "batch_size"},
		"a count":                     {sizes, `{"steps": 1, "n_iter": 2}`, "n_iter"},
		"their product":               {Rules{Max: map[string]float64{"batch": 5}}, `{"batch_size": 3, "n_iter": 2}`, "batch_size"},
		"enlarged":                    {sizes, `{"steps": 1, "width": 300, "height": 300, "enable_hr": true}`, "hr_scale"},
		"enlarged to a size":          {sizes, `{"steps": 1, "width": 256, "height": 256, "enable_hr": 1, "hr_resize_x": 600}`, "hr_resize_x"},
		"enlarged to a height":        {sizes, `{"steps": 1, "width": 256, "height": 128, "enable_hr": "true", "hr_resize_y": 500}`, "hr_resize_y"},
		"cut after being enlarged":    {sizes, `{"steps": 1, "width": 100, "height": 200, "enable_hr": true, "hr_resize_x": 500, "hr_resize_y": 300}`, "hr_resize_x"},
		"enlarged within bounds":      {sizes, `{"steps": 1, "width": 256, "height": 256, "enable_hr": true, "hr_second_pass_steps": 10}`, ""},
		"not enlarged":                {sizes, `{"steps": 1, "enable_hr": false, "hr_scale": 2, "hr_second_pass_steps": 90}`, ""},
		"steps when enlarged":         {sizes, `{"steps": 1, "enable_hr": true, "hr_scale": 1, "hr_second_pass_steps": 90}`, "hr_second_pass_steps"},
		"the first phase":             {sizes, `{"steps": 1, "enable_hr": true, "hr_scale": 1, "firstphase_width": 900}`, "firstphase_width"},
		"no checkpoint":               {deny, `{"prompt": "a"}`, "override_settings.sd_model_checkpoint"},
		"an empty checkpoint":         {deny, `{"override_settings": {"sd_model_checkpoint": ""}}`, "override_settings.sd_model_checkpoint"},
		"a denied checkpoint":         {deny, `{"override_settings": {"sd_model_checkpoint": "internal-secret"}}`, "override_settings.sd_model_checkpoint"},
		"its hash":                    {deny, `{"override_settings": {"sd_model_checkpoint": "cccccccccc"}}`, "override_settings.sd_model_checkpoint"},
		"its long hash":               {deny, `{"override_settings": {"sd_model_checkpoint": "cccccccccc0000000000"}}`, "override_settings.sd_model_checkpoint"},
		"its name and hash":           {deny, `{"override_settings": {"sd_model_checkpoint": "internal-secret [cccccccccc]"}}`, "override_settings.sd_model_checkpoint"},
		"a hash of nothing known":     {deny, `{"override_settings": {"sd_model_checkpoint": "0123456789"}}`, "override_settings.sd_model_checkpoint"},
		"a hash of no known file":     {allow, `{"override_settings": {"sd_model_checkpoint": "deadbeef"}}`, "override_settings.sd_model_checkpoint"},
		"a hash that is allowed":      {allow, `{"override_settings": {"sd_model_checkpoint": "aaaaaaaaaa"}}`, ""},
		"a name that is allowed":      {allow, `{"override_settings": {"sd_model_checkpoint": "a"}}`, ""},
		"a name in a folder":          {deny, `{"override_settings": {"sd_model_checkpoint": "b"}}`, "override_settings.sd_model_checkpoint"},
		"a folder in a name":          {deny, `{"override_settings": {"sd_model_checkpoint": "nsfw_b"}}`, "override_settings.sd_model_checkpoint"},
		"an extension of the rule":    {deny, `{"override_settings": {"sd_model_checkpoint": "hidden"}}`, "override_settings.sd_model_checkpoint"},
		"a checkpoint of no text":     {deny, `{"override_settings": {"sd_model_checkpoint": ["a"]}}`, "override_settings.sd_model_checkpoint override_settings.sd_model_checkpoint"},
		"settings as pairs":           {Rules{}, `{"override_settings": [["outdir_samples", "/x"]]}`, "override_settings"},
		"a VAE":                       {deny, `{"override_settings": {"sd_model_checkpoint": "a", "sd_vae": "internal-v.pt"}}`, "override_settings.sd_vae"},
		"modules":                     {deny, `{"override_settings": {"sd_model_checkpoint": "a", "forge_additional_modules": ["/m/VAE/internal-v.safetensors"]}}`, "override_settings.forge_additional_modules"},
		"a refiner":                   {deny, `{` + named + `"refiner_checkpoint": "internal-secret"}`, "refiner_checkpoint"},
		"no refiner":                  {allow, `{` + named + `"refiner_checkpoint": "None", "hr_checkpoint_name": "Use same checkpoint", "hr_upscaler": "Latent (antialiased)"}`, ""},
		"a part of a name":            {allow, `{` + named + `"hr_checkpoint_name": "none"}`, "hr_checkpoint_name"},
		"another one to enlarge":      {deny, `{` + named + `"hr_checkpoint_name": "internal-secret"}`, "hr_checkpoint_name"},
		"an upscaler":                 {deny, `{` + named + `"hr_upscaler": "internal-4x"}`, "hr_upscaler"},
		"a LoRA":                      {deny, `{` + named + `"prompt": "<lora:internal-ink:1>"}`, "prompt"},
		"a LoRA behind an assignment": {deny, `{` + named + `"negative_prompt": "<lora:te=1:internal-ink>"}`, "negative_prompt"},
		"a hypernet":                  {deny, `{` + named + `"hr_prompt": "<hypernet:internal-h:1>"}`, "hr_prompt"},
		"a LoRA by its other name":    {deny, `{` + named + `"prompt": "<lora:harmless:1>"}`, "prompt"},
		"a LoRA in a folder":          {deny, `{` + named + `"hr_negative_prompt": "<lyco:x:1>"}`, "hr_negative_prompt"},
		"a LoRA that is allowed":      {allow, `{` + named + `"prompt": "<lora:drawing:1>"}`, ""},
		"a LoRA that is not":          {allow, `{` + named + `"prompt": "<lora:other:1>"}`, "prompt"},
		"an embedding":                {deny, `{` + named + `"negative_prompt": "bad, (Internal-Face:1.2)"}`, "negative_prompt"},
		"an embedding in disguise":    {deny, `{` + named + `"prompt": "xinternal&#45;face"}`, "prompt"},
		"an allowed embedding":        {allow, `{` + named + `"prompt": "easynegative"}`, ""},
		"styles":                      {deny, `{` + named + `"styles": ["x"]}`, "styles"},
		"no styles":                   {deny, `{` + named + `"styles": []}`, ""},
		"an address":                  {Rules{}, `{"init_images": ["http://10.0.0.1/x"]}`, "init_images"},
		"an address as a mask":        {Rules{}, `{"mask": "HTTPS://x"}`, "mask"},
		"a picture":                   {Rules{}, `{"init_images": [{"comfyhub_input": 0}, "data:image/avif;base64,AAAA", "AAAA/+="]}`, ""},
		"a script":                    {Rules{}, `{"script_name": "X/Y/Z plot", "script_args": [1]}`, "script_name script_args"},
		"no script":                   {Rules{}, `{"script_name": "", "script_args": [], "alwayson_scripts": {}, "infotext": null, "save_images": false, "latent_mask": ""}`, ""},
		"scripts":                     {Rules{}, `{"alwayson_scripts": {"ControlNet": {"args": [{"enabled": true}]}, "ADetailer": {"args": [false]}, "x": {"args": {"a": 1}}}}`, "alwayson_scripts.ControlNet alwayson_scripts.x"},
		"scripts as a list":           {Rules{}, `{"alwayson_scripts": [["ControlNet", {}]]}`, "alwayson_scripts"},
		"what writes":                 {Rules{}, `{"save_images": true, "override_settings": {"outdir_samples": "/x", "samples_filename_pattern": "x"}}`, "save_images override_settings.outdir_samples override_settings.samples_filename_pattern"},
		"what reads other parameters": {Rules{}, `{"infotext": "x\nSteps: 150"}`, "infotext"},
		"what is not known":           {Rules{}, `{"forge_extra": 1, "other": null}`, "forge_extra"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, class := range []string{a1111.ClassTxt2Img, a1111.ClassImg2Img} {
				require.Equal(t, c.want, asked(t, c.rules, nil, class, c.payload, ""), class)
			}
		})
	}
}

// A tenant's own options count as the settings of a request do.
func TestRulesOfA1111Options(t *testing.T) {
	t.Parallel()
	deny := Rules{DenyModels: []string{"internal-*"}}
	require.Empty(t, asked(t, deny, nil, a1111.ClassTxt2Img, `{}`, `{"sd_model_checkpoint": "a"}`))
	require.Equal(t, "sd_model_checkpoint sd_vae", asked(t, deny, nil, a1111.ClassTxt2Img, `{}`, `{"sd_model_checkpoint": "internal-secret", "sd_vae": "internal-v"}`))
	require.Equal(t, "outdir_samples", asked(t, Rules{}, nil, a1111.ClassTxt2Img, `{}`, `{"outdir_samples": "/x"}`))
}

// The requests that enlarge pictures are bounded by the size that they name.
func TestRulesOfA1111Extras(t *testing.T) {
	t.Parallel()
	r := Rules{Max: map[string]float64{"width": 1000}, DenyModels: []string{"internal-*"}}
	for payload, want := range map[string]string{
		`{"image": {"comfyhub_input": 0}, "resize_mode": 1, "upscaling_resize_w": 1000}`: "",
		`{"image": {"comfyhub_input": 0}, "resize_mode": 1, "upscaling_resize_w": 1001}`: "upscaling_resize_w",
		`{"image": {"comfyhub_input": 0}}`:                                               "upscaling_resize",
		`{"image": {"comfyhub_input": 0}, "upscaling_resize": 1}`:                        "",
		`{"image": "http://x", "upscaling_resize": 1}`:                                   "image",
		`{"imageList": [{"data": "file:///x", "name": "a"}], "upscaling_resize": 1}`:     "imageList",
		`{"image": "", "upscaling_resize": 1, "upscaler_2": "internal-4x"}`:              "upscaler_2",
		`{"image": "", "upscaling_resize": 1, "upscaler_1": "None"}`:                     "",
	} {
		require.Equal(t, want, asked(t, r, nil, a1111.ClassExtraSingle, payload, ""), payload)
	}
	require.Empty(t, asked(t, r, nil, a1111.ClassInterrogate, `{"image": {"comfyhub_input": 0}, "model": "clip"}`, ""))
	require.Equal(t, "image", asked(t, r, nil, a1111.ClassPNGInfo, `{"image": "http://x"}`, ""))
}

// What the operator lets pass may still name no model that is denied, and no address.
func TestRulesOfA1111Allowed(t *testing.T) {
	t.Parallel()
	open := []string{"control*", "x/y/z plot", "save_images", "forge_*"}
	payload := `{"override_settings": {"sd_model_checkpoint": "a", "outdir": "/x"}, "save_images": true, "forge_extra": 1, "script_name": "X/Y/Z plot", "script_args": ["internal-secret"],
		"alwayson_scripts": {"ControlNet": {"args": [{"model": "canny [0123abcd]", "module": "canny"}]}, "other": {"args": [1]}}}`
	require.Equal(t, "override_settings.outdir alwayson_scripts.other", asked(t, Rules{}, open, a1111.ClassTxt2Img, payload, ""))
	require.Equal(t, "override_settings.outdir script_args alwayson_scripts.other", asked(t, Rules{DenyModels: []string{"internal-*"}}, open, a1111.ClassTxt2Img, payload, ""))
	require.Equal(t, "override_settings.outdir alwayson_scripts.ControlNet alwayson_scripts.other", asked(t, Rules{AllowModels: []string{"sub/*"}}, open, a1111.ClassTxt2Img, payload, ""))
	require.Equal(t, "alwayson_scripts.ControlNet", asked(t, Rules{}, open, a1111.ClassTxt2Img, `{"alwayson_scripts": {"ControlNet": {"args": [{"image": "http://10.0.0.1/"}]}}}`, ""))
}
