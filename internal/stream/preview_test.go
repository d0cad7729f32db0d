package stream

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// image makes a frame of event type 1.
func image(format uint32, bytes string) []byte {
	data := binary.BigEndian.AppendUint32(nil, eventImage)
	data = binary.BigEndian.AppendUint32(data, format)
	return append(data, bytes...)
}

// imageWithMetadata makes a frame of event type 4.
func imageWithMetadata(metadata, bytes string) []byte {
	data := binary.BigEndian.AppendUint32(nil, eventImageMetadata)
	data = binary.BigEndian.AppendUint32(data, uint32(len(metadata)))
	return append(append(data, metadata...), bytes...)
}

func TestImageForms(t *testing.T) {
	t.Parallel()
	jpeg := `{"node_id": "2", "prompt_id": "p", "display_node_id": "2", "parent_node_id": null, "real_node_id": "2", "image_type": "image/jpeg"}`
	png := `{"node_id": "2", "prompt_id": "p", "display_node_id": "2", "parent_node_id": null, "real_node_id": "2", "image_type": "image/png"}`
	for _, c := range []struct{ with, without []byte }{
		{imageWithMetadata(jpeg, "\xff\xd8\xff"), image(formatJPEG, "\xff\xd8\xff")},
		{imageWithMetadata(png, "\x89PNG"), image(formatPNG, "\x89PNG")},
		{imageWithMetadata(jpeg, ""), image(formatJPEG, "")},
	} {
		got, ok := withoutMetadata(c.with)
		require.True(t, ok)
		require.Equal(t, c.without, got)
		got, ok = withMetadata(c.without, "p", "2")
		require.True(t, ok)
		require.Equal(t, c.with, got)
	}
	// If the type is unknown, the image itself decides.
	for _, metadata := range []string{"", "{}", "[]", "nonsense", `{"image_type": "image/webp"}`} {
		got, ok := withoutMetadata(imageWithMetadata(metadata, string(pngMagic)))
		require.True(t, ok)
		require.Equal(t, image(formatPNG, string(pngMagic)), got)
	}
	for _, data := range [][]byte{nil, []byte("1234567"), image(1, ""), {0, 0, 0, 4, 0, 0, 0, 9, 1, 2}, {0, 0, 0, 4, 255, 255, 255, 255}} {
		_, ok := withoutMetadata(data)
		require.False(t, ok, "%x", data)
	}
	for _, data := range [][]byte{nil, image(3, "webp"), imageWithMetadata("", ""), {0, 0, 0, 1}} {
		_, ok := withMetadata(data, "p", "2")
		require.False(t, ok, "%x", data)
	}
}

// step returns a message of kind k from node n.
func step(k Kind, n, data string) *frame {
	return &frame{kind: k, prompt: "p", node: n, binary: k == Preview || k == Result, data: []byte(data)}
}

func TestImagesChangeSides(t *testing.T) {
	type4 := string(imageWithMetadata(`{"image_type": "image/png"}`, "img"))
	type1 := string(image(formatPNG, "img"))
	upgraded, ok := withMetadata([]byte(type1), "p", "2")
	require.True(t, ok)
	up := string(upgraded)
	remote := "\x00\x00\x00\x07 something else"
	frames := func(frames ...*frame) []*frame { return frames }
	state, end, next := step(ProgressState, "", "s"), step(Other, "", "end"), step(Executing, "3", "e")
	preview4, preview1 := step(Preview, "2", type4), step(Preview, "2", type1)
	result4, odd := step(Result, "2", type4), step(Result, "2", string(image(9, "x")))
	at := func(text string) *frame { return step(Progress, "2", text) }
	type row struct {
		metadata bool
		in       []*frame
		out      []string
	}
	beside.Cases(t, map[string]row{
		"type 4 for a client that wants it":           {true, frames(state, preview4, at("1/2")), words("s", type4, "1/2")},
		"type 4 for a client that does not":           {false, frames(state, preview4, at("1/2"), state), words("s", "1/2", type1, "s")},
		"results likewise":                            {false, frames(next, result4, at("0/2"), result4, at("1/2"), end), words("e", "0/2", type1, "1/2", type1, "end")},
		"without progress the order stays":            {false, frames(result4, result4, next), words(type1, type1, "e")},
		"type 1 for a client that does not want more": {false, frames(at("1/2"), preview1, at("2/2"), preview1), words("1/2", type1, "2/2", type1)},
		"type 1 for a client that wants type 4":       {true, frames(at("1/3"), preview1, at("2/3"), preview1, at("3/3"), end), words("1/3", up, up, "2/3", "3/3", "end")},
		"progress of another node does not wait":      {true, frames(preview1, step(Progress, "9", "1/3"), preview1), words(up, "1/3", up)},
		"what is no image of ComfyUI's passes": {
			true, frames(step(Preview, "2", remote), odd, &frame{kind: Other, binary: true, data: []byte(type1)}), words(remote, string(odd.data), type1),
		},
	}, func(t *testing.T, c row) {
		var a adapter
		var got []string
		for _, f := range c.in {
			for _, out := range a.adapt(f, f.data, c.metadata) {
				require.Equal(t, bytes.HasPrefix(out.data, []byte{0}), out.binary)
				got = append(got, string(out.data))
			}
		}
		for _, out := range a.flush() {
			got = append(got, string(out.data))
		}
		require.Equal(t, c.out, got)
	})
}

func FuzzImageForms(f *testing.F) {
	f.Add(image(formatJPEG, "x"), "p", "2")
	f.Add(imageWithMetadata(`{"image_type": "image/png"}`, "x"), "p", "2")
	f.Add([]byte{0, 0, 0, 4, 255, 255, 255, 255}, "", "")
	f.Fuzz(func(t *testing.T, data []byte, prompt, node string) {
		before := bytes.Clone(data)
		if up, ok := withMetadata(data, prompt, node); ok {
			down, ok := withoutMetadata(up)
			require.True(t, ok)
			require.Equal(t, data, down, "up and down again is the same frame")
		}
		if down, ok := withoutMetadata(data); ok {
			require.LessOrEqual(t, len(down), len(data))
			require.True(t, bytes.HasSuffix(data, down[8:]), "the image bytes stay")
		}
		var a adapter
		fr := &frame{kind: Preview, binary: true, node: node, prompt: prompt}
		n := 0
		for _, metadata := range []bool{false, true} {
			n += len(a.adapt(fr, data, metadata))
		}
		require.Equal(t, 2, n+len(a.flush()), "nothing is lost")
		require.Equal(t, before, data, "the input is shared and must not change")
	})
}
