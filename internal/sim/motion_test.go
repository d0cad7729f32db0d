package sim_test

import (
	"encoding/binary"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

func TestVideosAnimationsAndSounds(t *testing.T) {
	t.Parallel()
	for version, says := range map[string]struct{ video, picture string }{
		"0.3.64": {}, "0.33.0": {},
		"0.38.1": {
			`, "metadata": {"kind": "video", "width": 64, "height": 48, "duration": 0.5, "fps": 10.0, "frame_count": 5}`,
			`, "metadata": {"kind": "image", "width": 64, "height": 48}`,
		},
	} {
		i := start(t, sim.Config{Version: version, DisableAssets: true})
		id := i.submit(`{
			"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 48, "batch_size": 5, "color": 255}},
			"2": {"class_type": "CreateVideo", "inputs": {"images": ["1", 0], "fps": 10}},
			"3": {"class_type": "SaveVideo", "inputs": {"video": ["2", 0], "filename_prefix": "video/clip", "format": "auto", "codec": "auto"}},
			"4": {"class_type": "GetVideoComponents", "inputs": {"video": ["2", 0]}},
			"5": {"class_type": "SaveAnimatedWEBP", "inputs": {"images": ["4", 0], "filename_prefix": "loop", "fps": 6, "lossless": true, "quality": 80, "method": "default"}},
			"6": {"class_type": "EmptyAudio", "inputs": {"duration": 1.5, "sample_rate": 44100, "channels": 2}},
			"7": {"class_type": "SaveAudio", "inputs": {"audio": ["6", 0], "filename_prefix": "audio/tune"}},
			"8": {"class_type": "SaveAudioMP3", "inputs": {"audio": ["6", 0], "filename_prefix": "audio/tune", "quality": "128k"}}}`, "")
		entry := i.history(id)
		require.Contains(t, entry, `"3": {"images": [{"filename": "clip_00001_.mp4", "subfolder": "video", "type": "output"`+says.video+`}], "animated": [true]}`)
		require.Contains(t, entry, `"5": {"images": [{"filename": "loop_00001_.webp", "subfolder": "", "type": "output"`+says.picture+`}], "animated": [true]}`)
		require.Contains(t, entry, `"7": {"audio": [{"filename": "tune_00001_.flac", "subfolder": "audio", "type": "output"}]}`)
		require.Contains(t, entry, `"8": {"audio": [{"filename": "tune_00002_.mp3", "subfolder": "audio", "type": "output"}]}`)

		mp4 := i.view("filename=clip_00001_.mp4&subfolder=video", "video/mp4")
		var kinds []string
		for rest := mp4; rest != ""; {
			size := binary.BigEndian.Uint32([]byte(rest))
			kinds = append(kinds, rest[4:8])
			rest = rest[size:]
		}
		require.Equal(t, []string{"ftyp", "mdat", "moov"}, kinds)
		require.Equal(t, 5, strings.Count(mp4, "\xff\xd8\xff\xdb"), "five pictures")

		webp := i.view("filename=loop_00001_.webp", "image/webp")
		require.Len(t, webp, int(binary.LittleEndian.Uint32([]byte(webp[4:])))+8)
		require.Equal(t, 5, strings.Count(webp, "ANMF"))
		flac := i.view("filename=tune_00001_.flac&subfolder=audio", "audio/flac")
		require.True(t, strings.HasPrefix(flac, "fLaC"))
		mp3 := i.view("filename=tune_00002_.mp3&subfolder=audio", "audio/mpeg")
		require.Len(t, mp3, 58*417, "58 frames are 1.5 s")
	}
}

// A picture is its own preview; a video has none as long as nobody has made one.
func TestPreviewsOfAssets(t *testing.T) {
	t.Parallel()
	i := start(t, sim.Config{Version: "0.38.1"})
	id := i.submit(`{
		"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 48, "batch_size": 5, "color": 255}},
		"2": {"class_type": "CreateVideo", "inputs": {"images": ["1", 0], "fps": 10}},
		"3": {"class_type": "SaveVideo", "inputs": {"video": ["2", 0], "filename_prefix": "clip", "format": "auto", "codec": "auto"}},
		"5": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}}`, "")
	entry := i.history(id)
	require.Regexp(t, `"3": \{"images": \[\{"filename": "clip_00001_.mp4", [^{}]*"metadata": \{[^{}]*\}, "id": "[0-9a-f-]{36}"\}\]`, entry)
	require.Regexp(t, `"filename": "ComfyUI_temp_\w+_00001_.png", [^{}]*"metadata": \{[^{}]*\}, "id": "[0-9a-f-]{36}", "preview_id": "[0-9a-f-]{36}"\}`, entry)
}

// view reads a file of the output folder and checks its type.
func (i *instance) view(query, kind string) string {
	i.t.Helper()
	resp, err := http.Get(i.url + "/view?" + query)
	require.NoError(i.t, err)
	require.Equal(i.t, kind, resp.Header.Get("Content-Type"))
	status, body := readAnswer(i.t, resp)
	require.Equal(i.t, http.StatusOK, status)
	return body
}

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
