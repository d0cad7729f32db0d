package workflow

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStage(t *testing.T) {
	t.Parallel()
	command := func(classes ...string) *Command {
		graph := "{"
		for i, class := range classes {
			graph += fmt.Sprintf(`"%d": {"class_type": %q, "inputs": {}, "_meta": {"title": "x"}},`, i+1, class)
		}
		c, err := NewCommand("c", Spec{}, []byte(graph[:len(graph)-1]+"}"))
		require.NoError(t, err)
		return c
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
