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
		"CheckpointLoaderSimple":   {Kind{Category: "loaders"}, Loading},
		"UNETLoader":               {Kind{Category: "advanced/loaders"}, Loading},
		"CLIPTextEncode":           {Kind{Category: "conditioning"}, Encoding},
		"VAEEncode":                {Kind{Category: "latent"}, Encoding},
		"KSampler":                 {Kind{Category: "sampling"}, Sampling},
		"SamplerCustomAdvanced":    {Kind{Category: "sampling/custom_sampling"}, Sampling},
		"VAEDecodeTiled":           {Kind{Category: "_for_testing"}, Decoding},
		"DownloadAndLoadSAM2Model": {Kind{Category: "SAM2"}, Downloading},
		"UltimateSDUpscale":        {Kind{Category: "image/upscaling"}, Upscaling},
		"UpscaleModelLoader":       {Kind{Category: "loaders"}, Upscaling},
		"SaveImage":                {Kind{Category: "image", Output: true}, Saving},
		"FluxProImageNode":         {Kind{Category: "api node/image/BFL"}, Service},
		"SomeServiceNode":          {Kind{API: true}, Service},
		"ImageBlur":                {Kind{Category: "image/postprocessing"}, Other},
		"gone":                     {Kind{}, Other},
	} {
		require.Equal(t, c.want, PhaseOf(class, c.kind), class)
	}
}

func TestHints(t *testing.T) {
	t.Parallel()
	lightning := `{"1": {"class_type": "LoraLoader", "inputs": {"lora_name": "sdxl/sdxl_Lightning_8step.safetensors"}}, "2": {"class_type": "KSampler", "inputs": {"steps": 40}}}`
	flux := `{"1": {"class_type": "UNETLoader", "inputs": {"unet_name": "flux1-dev.safetensors"}}, "2": {"class_type": "KSampler", "inputs": {"steps": 20}}}`
	sampling := []Spent{{Class: "KSampler", Phase: Sampling, Took: 10 * time.Second}, {Class: "SaveImage", Phase: Saving, Took: time.Second}}
	loader := Spent{Class: "DownloadAndLoadFlorence2Model", Phase: Downloading, Took: 9 * time.Second, Least: 2 * time.Second}
	few := Hint{Name: FewerSteps, Text: "40 steps with sdxl_Lightning_8step, which is made for few: 8 would do.", Saves: 8 * time.Second}
	for name, c := range map[string]struct {
		graph   string
		m       Measured
		without string
		want    []Hint
	}{
		"too few runs":          {lightning, Measured{Classes: sampling, Runs: 2}, "", nil},
		"nothing to say":        {flux, Measured{Classes: sampling, Runs: 9}, "", nil},
		"no graph":              {`[]`, Measured{Classes: sampling, Runs: 9, Extra: 20 * time.Second, Cold: 5, Ran: 9}, "", nil},
		"a model for few steps": {lightning, Measured{Classes: sampling, Runs: 9}, "", []Hint{few}},
		"dismissed":             {lightning, Measured{Classes: sampling, Runs: 9}, FewerSteps, nil},
		"that saves little":     {lightning, Measured{Classes: []Spent{{Class: "KSampler", Phase: Sampling, Took: 900 * time.Millisecond}}, Runs: 9}, "", nil},
		"loaded again and again": {flux, Measured{Classes: sampling, Runs: 9, Extra: 12 * time.Second, Cold: 5, Ran: 10}, "", []Hint{
			{Name: ReserveModels, Text: "5 of the last 10 runs had to load flux1-dev first, which took 12.0 s: reserve an instance for it.", Saves: 6 * time.Second},
		}},
		"loaded for three tenants": {flux, Measured{Classes: sampling, Runs: 9, Extra: 12 * time.Second, Cold: 5, Ran: 10, Tenants: 3}, "", []Hint{
			{Name: ReserveModels, Text: "5 of the last 10 runs had to load flux1-dev first, which took 12.0 s; 3 tenants use it: reserve an instance for it.", Saves: 6 * time.Second},
		}},
		"loaded once": {flux, Measured{Classes: sampling, Runs: 9, Extra: 12 * time.Second, Cold: 1, Ran: 10}, "", nil},
		"both, that which saves most first": {lightning, Measured{Classes: sampling, Runs: 9, Extra: 20 * time.Second, Cold: 9, Ran: 10}, "", []Hint{
			{Name: ReserveModels, Text: "9 of the last 10 runs had to load sdxl_Lightning_8step first, which took 20.0 s: reserve an instance for it.", Saves: 18 * time.Second}, few,
		}},
		"somebody else's time": {`{"1": {"class_type": "FluxPro", "inputs": {}}}`, Measured{Classes: []Spent{{Class: "FluxPro", Phase: Service, Took: 9 * time.Second}, {Class: "SaveImage", Phase: Saving, Took: time.Second}}, Runs: 3}, "", []Hint{
			{Name: NeedsNoGPU, Text: "9.0 s of 10.0 s is waiting for a service: an instance without a GPU would do.", Saves: 9 * time.Second},
		}},
		"a download": {flux, Measured{Classes: append([]Spent{loader}, sampling...), Runs: 3}, "", []Hint{
			{Name: Downloads, Text: "DownloadAndLoadFlorence2Model downloads what an instance lacks, and takes 9.0 s instead of 2.0 s: put its files on the instances.", Saves: 7 * time.Second},
		}},
		"nothing left to download": {flux, Measured{Classes: []Spent{{Class: loader.Class, Phase: Downloading, Took: 9 * time.Second, Least: 8500 * time.Millisecond}}, Runs: 3}, "", nil},
		"made before": {flux, Measured{Equal: &Equal{ID: "first", Ago: 61 * time.Minute, Took: 20 * time.Second}}, "", []Hint{
			{Name: SamePrompt, Text: "The same was made 61 min ago: open that.", Saves: 20 * time.Second, Job: "first"},
		}},
		"previews for nobody": {flux, Measured{Classes: sampling, Runs: 3, Unseen: 4 * time.Second}, "", []Hint{
			{Name: UnseenPreview, Text: "4.0 s of 11.0 s is for previews that nobody has opened: leave them out.", Saves: 4 * time.Second},
		}},
		"no more than three": {lightning, Measured{
			Classes: append([]Spent{loader}, sampling...), Runs: 9, Extra: 20 * time.Second, Cold: 9, Ran: 10, Unseen: 3 * time.Second, Equal: &Equal{ID: "first", Ago: 5 * time.Hour, Took: 30 * time.Second},
		}, "", []Hint{
			{Name: SamePrompt, Text: "The same was made 5 h ago: open that.", Saves: 30 * time.Second, Job: "first"},
			{Name: ReserveModels, Text: "9 of the last 10 runs had to load sdxl_Lightning_8step first, which took 20.0 s: reserve an instance for it.", Saves: 18 * time.Second},
			few,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, Of(Read(parsed(t, c.graph)), c.m, []string{c.without}))
		})
	}
}

func parsed(t *testing.T, text string) *pyjson.Object {
	v, err := pyjson.Parse([]byte(text))
	require.NoError(t, err)
	graph, _ := v.(*pyjson.Object)
	return graph
}

func TestOnlyFor(t *testing.T) {
	t.Parallel()
	graph := parsed(t, `{
		"load": {"class_type": "CheckpointLoaderSimple", "inputs": {}},
		"sample": {"class_type": "KSampler", "inputs": {"model": ["load", 0]}},
		"decode": {"class_type": "VAEDecode", "inputs": {"samples": ["sample", 0], "vae": ["load", 2]}},
		"save": {"class_type": "SaveImage", "inputs": {"images": ["decode", 0]}},
		"up": {"class_type": "ImageUpscaleWithModel", "inputs": {"image": ["decode", 0]}},
		"loop": {"class_type": "Odd", "inputs": {"a": ["loop", 0], "b": ["gone", 0]}},
		"show": {"class_type": "PreviewImage", "inputs": {"images": ["up", 0]}}}`)
	require.ElementsMatch(t, []string{"ImageUpscaleWithModel", "PreviewImage"}, OnlyFor(graph, []string{"show"}, []string{"save"}))
	require.Empty(t, OnlyFor(graph, []string{"show"}, []string{"save", "show"}))
	require.Empty(t, OnlyFor(graph, nil, []string{"save", "loop"}))
	require.Empty(t, OnlyFor(nil, []string{"show"}, nil))
}
