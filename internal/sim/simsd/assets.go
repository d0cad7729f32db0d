package simsd

import "github.com/comfyhub/comfyhub/internal/pyjson"

// assets are the lists of what a server has beside models, by their paths. Each has something,
// so that nobody takes an empty list for a good answer.
func assets() map[string]pyjson.Value {
	text, no := func(s string) pyjson.Value { return pyjson.String(s) }, pyjson.Value(pyjson.Null{})
	embedding := dict("step", no, "sd_checkpoint", no, "sd_checkpoint_name", no, "shape", pyjson.Int(768), "vectors", pyjson.Int(2))
	titles := pyjson.Strings([]string{"x/y/z plot"})
	return map[string]pyjson.Value{
		"sd-vae":            pyjson.Array{dict("model_name", text("vae-ft-mse.safetensors"), "filename", text("/models/VAE/vae-ft-mse.safetensors"))},
		"hypernetworks":     pyjson.Array{dict("name", text("etching"), "path", text("/models/hypernetworks/etching.pt"))},
		"face-restorers":    pyjson.Array{dict("name", text("CodeFormer"), "cmd_dir", text("/models/Codeformer")), dict("name", text("GFPGAN"), "cmd_dir", no)},
		"realesrgan-models": pyjson.Array{dict("name", text("R-ESRGAN 4x+"), "path", text("/models/RealESRGAN/x4plus.pth"), "scale", pyjson.Int(4))},
		"prompt-styles":     pyjson.Array{dict("name", text("etching"), "prompt", text("an etching of {prompt}"), "negative_prompt", no)},
		"script-info": pyjson.Array{dict("name", text("x/y/z plot"), "is_alwayson", pyjson.Bool(false), "is_img2img", pyjson.Bool(false), "args", pyjson.Array{
			dict("label", text("X type"), "value", text("Seed"), "minimum", no, "maximum", no, "step", no, "choices", pyjson.Strings([]string{"Nothing", "Seed"})),
		})},
		"extensions": pyjson.Array{dict("name", text("Lora"), "remote", text(""), "branch", text(""), "commit_hash", text(""), "version", text(""),
			"commit_date", text("0"), "enabled", pyjson.Bool(true))},
		"scripts":    dict("txt2img", titles, "img2img", titles),
		"embeddings": dict("loaded", dict("easynegative", embedding), "skipped", &pyjson.Object{}),
		"cmd-flags": dict("api", pyjson.Bool(true), "api_auth", text("operator:secret"), "data_dir", text("/opt/webui"), "port", no,
			"use_cpu", pyjson.Strings([]string{"interrogate"})),
	}
}
