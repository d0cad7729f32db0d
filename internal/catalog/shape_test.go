package catalog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
)

func TestShape(t *testing.T) {
	t.Parallel()
	const graph = `{"1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sd15.safetensors"}},
		"2": {"class_type": "CLIPTextEncode", "inputs": {"text": "a cat", "clip": ["1", 1]}},
		"3": {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 512, "batch_size": 1}},
		"4": {"class_type": "KSampler", "inputs": {"seed": 5, "steps": 20, "model": ["1", 0], "positive": ["2", 0]}}}`
	shape := catalog.Shape([]byte(graph))
	require.NotEmpty(t, shape)
	for change, same := range map[string]bool{
		"a cat|a dog": true, `"seed": 5|"seed": 18446744073709551615`: true, `"1": {|"1":  {`: true,
		"sd15|sdxl": false, `"width": 512|"width": 2048`: false, `["2", 0]|["2", 1]`: false, "KSampler|KSamplerAdvanced": false,
	} {
		from, to, _ := strings.Cut(change, "|")
		changed := strings.Replace(graph, from, to, 1)
		require.NotEqual(t, graph, changed)
		require.Equal(t, same, shape == catalog.Shape([]byte(changed)), change)
	}
	require.Empty(t, catalog.Shape([]byte("[")))
}
