package hints

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func TestPhaseOf(t *testing.T) {
	t.Parallel()
	for class, c := range map[string]struct {
		kind Kind
		want Phase
	}{
		"CheckpointLoaderSimple": {Kind{Category: "loaders"}, Loading},
		"UNETLoader":             {Kind{Category: "advanced/loaders"}, Loading},
		"CLIPTextEncode":         {Kind{Category: "conditioning"}, Encoding},
		"VAEEncode":              {Kind{Category: "latent"}, Encoding},
		"KSampler":               {Kind{Category: "sampling"}, Sampling},
		"SamplerCustomAdvanced":  {Kind{Category: "sampling/custom_sampling"}, Sampling},
		"VAEDecodeTiled":         {Kind{Category: "_for_testing"}, Decoding},
		"UltimateSDUpscale":      {Kind{Category: "image/upscaling"}, Upscaling},
		"UpscaleModelLoader":     {Kind{Category: "loaders"}, Upscaling},
		"SaveImage":              {Kind{Category: "image", Output: true}, Saving},
		"FluxProImageNode":       {Kind{Category: "api node/image/BFL"}, Service},
		"SomeServiceNode":        {Kind{API: true}, Service},
		"ImageBlur":              {Kind{Category: "image/postprocessing"}, Other},
		"gone":                   {Kind{}, Other},
	} {
		require.Equal(t, c.want, PhaseOf(class, c.kind), class)
	}
}

func TestHints(t *testing.T) {
	t.Parallel()
	lightning := `{"1": {"class_type": "LoraLoader", "inputs": {"lora_name": "sdxl/sdxl_Lightning_8step.safetensors"}}, "2": {"class_type": "KSampler", "inputs": {"steps": 40}}}`
	flux := `{"1": {"class_type": "UNETLoader", "inputs": {"unet_name": "flux1-dev.safetensors"}}, "2": {"class_type": "KSampler", "inputs": {"steps": 20}}}`
	sampling := []Spent{{"KSampler", Sampling, 10 * time.Second}, {"SaveImage", Saving, time.Second}}
	for name, c := range map[string]struct {
		graph string
		m     Measured
		want  []Hint
	}{
		"too few runs":   {lightning, Measured{Classes: sampling, Runs: 2}, nil},
		"nothing to say": {flux, Measured{Classes: sampling, Runs: 9}, nil},
		"no graph":       {`[]`, Measured{Classes: sampling, Runs: 9, Extra: 20 * time.Second, Cold: 5, Ran: 9}, nil},
		"a model for few steps": {lightning, Measured{Classes: sampling, Runs: 9}, []Hint{
			{FewerSteps, "40 steps with sdxl_Lightning_8step, which is made for few: 8 would do.", 8 * time.Second},
		}},
		"that saves little": {lightning, Measured{Classes: []Spent{{"KSampler", Sampling, 900 * time.Millisecond}}, Runs: 9}, nil},
		"loaded again and again": {flux, Measured{Classes: sampling, Runs: 9, Extra: 12 * time.Second, Cold: 5, Ran: 10}, []Hint{
			{ReserveModels, "5 of the last 10 runs had to load flux1-dev first, which took 12.0 s: reserve an instance for it.", 6 * time.Second},
		}},
		"loaded once": {flux, Measured{Classes: sampling, Runs: 9, Extra: 12 * time.Second, Cold: 1, Ran: 10}, nil},
		"both, that which saves most first": {lightning, Measured{Classes: sampling, Runs: 9, Extra: 20 * time.Second, Cold: 9, Ran: 10}, []Hint{
			{ReserveModels, "9 of the last 10 runs had to load sdxl_Lightning_8step first, which took 20.0 s: reserve an instance for it.", 18 * time.Second},
			{FewerSteps, "40 steps with sdxl_Lightning_8step, which is made for few: 8 would do.", 8 * time.Second},
		}},
		"somebody else's time": {`{"1": {"class_type": "FluxPro", "inputs": {}}}`, Measured{Classes: []Spent{{"FluxPro", Service, 9 * time.Second}, {"SaveImage", Saving, time.Second}}, Runs: 3}, []Hint{
			{NeedsNoGPU, "9.0 s of 10.0 s is waiting for a service: an instance without a GPU would do.", 9 * time.Second},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := pyjson.Parse([]byte(c.graph))
			require.NoError(t, err)
			graph, _ := v.(*pyjson.Object)
			require.Equal(t, c.want, Of(graph, c.m))
		})
	}
}
