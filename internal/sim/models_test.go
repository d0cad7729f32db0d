package sim_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

// Files in a model folder are listed and accepted at once. The lists are what a
// real 0.3.64 answered for the same files.
func TestModelsOnDisk(t *testing.T) {
	t.Parallel()
	i := start(t, sim.Config{})
	const want = `["1795321157.safetensors", "B.CKPT", "a.safetensors", "sub/b.safetensors", "sub/deep/c.pt"]`
	_, info := i.get("/object_info/LoraLoader")
	require.Contains(t, info, `"lora_name": [[], `)
	for _, name := range []string{
		"1795321157.safetensors", "B.CKPT", "a.safetensors", "readme.txt", "sub/b.safetensors", "sub/deep/c.pt", ".git/x.pt",
	} {
		full := filepath.Join(i.Dir(), "models", "loras", filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, nil, 0o644))
	}
	_, listed := i.get("/models/loras")
	require.Equal(t, want, listed)
	_, info = i.get("/object_info/LoraLoader")
	require.Contains(t, info, `"lora_name": [`+want)
	_, info = i.get("/object_info")
	require.Contains(t, info, `"lora_name": [`+want)
	checkpoint := filepath.Join(i.Dir(), "models", "checkpoints", "c.safetensors")
	require.NoError(t, os.MkdirAll(filepath.Dir(checkpoint), 0o755))
	require.NoError(t, os.WriteFile(checkpoint, nil, 0o644))
	for name, want := range map[string]int{"sub/deep/c.pt": 200, "readme.txt": 400} {
		status, answer := i.post("/prompt", `{"prompt": {
			"1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "c.safetensors"}},
			"2": {"class_type": "LoraLoaderModelOnly", "inputs": {"model": ["1", 0], "lora_name": "`+name+`", "strength_model": 1}},
			"3": {"class_type": "PreviewAny", "inputs": {"source": ["2", 0]}}}}`)
		require.Equal(t, want, status, answer)
	}
}
