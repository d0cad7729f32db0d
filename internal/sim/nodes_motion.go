package sim

import (
	"fmt"
	"image"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// motionNode returns the behaviour of classes that make videos, animations and
// sounds.
func motionNode(class string) (nodeType, bool) {
	switch class {
	case "CreateVideo":
		return nodeType{run: runCreateVideo}, true
	case "GetVideoComponents":
		return nodeType{run: runVideoComponents}, true
	case "SaveVideo":
		return nodeType{run: runSaveVideo}, true
	case "SaveAnimatedWEBP":
		return nodeType{run: runSaveAnimatedWebP}, true
	case "EmptyAudio":
		return nodeType{run: runEmptyAudio}, true
	case "SaveAudio":
		return nodeType{run: func(c *call) (nodeResult, *exception) { return c.saveSound("flac", encodeFLAC) }}, true
	case "SaveAudioMP3":
		return nodeType{run: func(c *call) (nodeResult, *exception) { return c.saveSound("mp3", encodeMP3) }}, true
	}
	return nodeType{}, false
}

// video is a VIDEO.
type video struct {
	frames images
	sound  any // nil for none
	fps    float64
}

func runCreateVideo(c *call) (nodeResult, *exception) {
	frames, exc := c.image("images")
	if exc != nil {
		return nodeResult{}, exc
	}
	return one(video{frames: frames, sound: c.args["audio"], fps: c.number("fps", 30)}), nil
}

func (c *call) video(name string) (video, *exception) {
	v, ok := c.args[name]
	if !ok {
		return video{}, c.missing(name)
	}
	switch v := v.(type) {
	case video:
		if len(v.frames) == 0 {
			return video{}, raise("ValueError", "No video frames found")
		}
		return v, nil
	case opaque: // from a node that is not simulated
		return video{frames: placeholder("IMAGE", v.name).(images), fps: 30}, nil
	}
	return video{}, raise("AttributeError", "'%s' object has no attribute 'get_dimensions'", argType(v))
}

func runVideoComponents(c *call) (nodeResult, *exception) {
	v, exc := c.video("video")
	if exc != nil {
		return nodeResult{}, exc
	}
	outputs := []any{v.frames, v.sound, v.fps, pyjson.Number("8")} // the last since 0.33
	return nodeResult{outputs: outputs[:min(len(outputs), len(c.class.outputs))]}, nil
}

// runSaveVideo shows the video among the pictures, marked as animated, as ComfyUI
// does.
func runSaveVideo(c *call) (nodeResult, *exception) {
	v, exc := c.video("video")
	if exc != nil {
		return nodeResult{}, exc
	}
	data, err := encodeMP4(v.frames, v.fps)
	if err != nil {
		return nodeResult{}, raise("ValueError", "%v", err)
	}
	refs, exc := c.saveFile(v.frames, ".mp4", 1, data, "duration", float64(len(v.frames))/v.fps, "fps", v.fps, "frame_count", len(v.frames))
	result := nodeResult{ui: dict("images", refs, "animated", pyjson.Array{pyjson.Bool(true)})}
	if len(c.class.outputs) > 0 {
		result.outputs = []any{v}
	}
	return result, exc
}

func runSaveAnimatedWebP(c *call) (nodeResult, *exception) {
	frames, exc := c.image("images")
	if exc != nil {
		return nodeResult{}, exc
	}
	if len(frames) == 0 {
		return nodeResult{}, raise("IndexError", "index 0 is out of bounds for dimension 0 with size 0")
	}
	refs, exc := c.saveFile(frames, ".webp", 1, encodeAnimatedWebP(frames, c.number("fps", 6)))
	result := nodeResult{ui: dict("images", refs, "animated", pyjson.Array{pyjson.Bool(true)})}
	if len(c.class.outputs) > 0 {
		result.outputs = []any{frames}
	}
	return result, exc
}

func runEmptyAudio(c *call) (nodeResult, *exception) {
	return one(sound{
		seconds: c.number("duration", 60), rate: c.int("sample_rate", 44_100), channels: min(max(c.int("channels", 2), 1), 2), clips: 1,
	}), nil
}

// saveSound writes each clip of a batch to its own file.
func (c *call) saveSound(format string, encode func(sound) []byte) (nodeResult, *exception) {
	s, ok := c.args["audio"].(sound)
	if !ok {
		if _, ok := c.args["audio"].(opaque); !ok {
			return nodeResult{}, raise("TypeError", "'%s' object is not subscriptable", argType(c.args["audio"]))
		}
		s = sound{seconds: 1, rate: 44_100, channels: 2, clips: 1} // from a node that is not simulated
	}
	const longest = 3600 // seconds; EmptyAudio itself has practically no limit
	if s.seconds > longest {
		return nodeResult{}, raise("RuntimeError", "[enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory")
	}
	refs, exc := c.saveFile(nil, "."+format, s.clips, encode(s))
	result := nodeResult{ui: dict("audio", refs)}
	if len(c.class.outputs) > 0 {
		result.outputs = []any{s}
	}
	return result, exc
}

// saveFile writes the same bytes to the given number of files under the prefix of
// the node and returns their references. size is available for the name; media is as withMedia
// has it.
func (c *call) saveFile(size images, extension string, count int, data []byte, media ...any) (pyjson.Array, *exception) {
	var bounds image.Rectangle
	if len(size) > 0 {
		bounds = size[0].Bounds()
	}
	t, exc := c.proc.files.next("output", c.text("filename_prefix"), bounds.Dx(), bounds.Dy())
	if exc != nil {
		return nil, exc
	}
	var refs pyjson.Array
	for i := range count {
		name := fmt.Sprintf("%s_%05d_%s", strings.ReplaceAll(t.name, "%batch_num%", fmt.Sprint(i)), t.counter+i, extension)
		if err := os.WriteFile(filepath.Join(t.dir, name), data, 0o644); err != nil {
			return nil, raise("OSError", "%v", err)
		}
		refs = append(refs, withMedia(c.proc, saved(name, t.subfolder, "output"), bounds, media...))
	}
	return slices.Clip(refs), nil
}
