package stream

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// traceStep is one step of a recording, see testdata/README.md.
type traceStep struct {
	Kind    string `json:"kind"`
	Client  string `json:"client"`
	Text    string `json:"text"`
	HeadHex string `json:"head_hex"`
	Decoded struct {
		Event    int    `json:"event"`
		Metadata string `json:"metadata_text"`
	} `json:"decoded"`
}

// traceRuns returns the runs that one client of a recording was sent, each from
// execution_start to executing null. Images are cut to what is recorded.
func traceRuns(t *testing.T, name, client string) (runs [][]Message) {
	data := must(os.ReadFile(filepath.Join("testdata", name)))
	var trace struct{ Steps []traceStep }
	require.NoError(t, json.Unmarshal(data, &trace))
	var run []Message
	for _, s := range trace.Steps {
		if s.Client != client || s.Kind != "ws_text" && s.Kind != "ws_binary" {
			continue
		}
		m := s.message()
		if strings.Contains(s.Text, `"execution_start"`) {
			run = nil
		}
		run = append(run, m)
		if strings.Contains(s.Text, `"node": null`) {
			runs = append(runs, run)
		}
	}
	return runs
}

func (s traceStep) message() Message {
	if s.Kind == "ws_binary" {
		head := must(hex.DecodeString(s.HeadHex))
		if s.Decoded.Event == eventImageMetadata {
			head = imageWithMetadata(s.Decoded.Metadata, "image")
		}
		return Message{Kind: Preview, Binary: true, Data: head}
	}
	m := Message{Data: []byte(s.Text)}
	for _, k := range []Kind{Executing, ProgressState, Progress} {
		if strings.HasPrefix(s.Text, `{"type": "`+k.String()+`"`) {
			m.Kind = k
		}
	}
	return m
}

// play sends a recorded run as an instance would, and ends it.
func play(run *Run, msgs []Message) {
	ends := slices.IndexFunc(msgs, func(m Message) bool {
		return strings.Contains(string(m.Data), `"execution_success"`)
	})
	for _, m := range msgs[:ends] {
		run.Send(m)
	}
	run.End(msgs[ends])
}

// shape returns a message without the parts that differ between two recordings.
func shape(word string) string {
	if image, ok := strings.CutPrefix(word, "binary:"); ok {
		return hex.EncodeToString([]byte(image[:8]))
	}
	var m struct {
		Type string
		Data struct{ Node, Value any }
	}
	if err := json.Unmarshal([]byte(word), &m); err != nil {
		return err.Error()
	}
	text, _ := json.Marshal(m)
	return string(text)
}

func shapes(msgs []Message) (all []string) {
	for _, m := range msgs {
		word := string(m.Data)
		if m.Binary {
			word = "binary:" + word
		}
		all = append(all, shape(word))
	}
	return all
}

func TestRecordedRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, client, legacy, legacyClient string }{
		"previews": {"run-preview-metadata.json", "c", "run-preview-legacy.json", "c"},
		// The client with flags asks for two images, the other for one.
		"results": {"save-image-websocket.json", "with-flags", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, r *rig) {
				plain := r.open("/ws?clientId=plain")
				flagged := r.open("/ws?clientId=flagged")
				flagged.announce()
				time.Sleep(flagGrace) // without an answer by then, the client has no flags
				plain.settled()
				flagged.settled()
				recorded := traceRuns(t, c.file, c.client)
				require.NotEmpty(t, recorded)
				for i, msgs := range recorded {
					prompt := promptOf(t, msgs)
					for _, client := range []string{"plain", "flagged"} {
						play(r.streams.Begin(Key{Client: client}, Attempt{Prompt: prompt, Fence: 1}), msgs)
					}
					want := make([]string, len(msgs))
					for j, m := range msgs {
						want[j] = string(m.Data)
						if m.Binary {
							want[j] = "binary:" + want[j]
						}
					}
					require.Equal(t, want, flagged.settled(), "byte for byte as recorded")
					got := plain.settled()
					require.Len(t, got, len(want))
					if c.legacy != "" {
						var gotShapes []string
						for _, word := range got {
							gotShapes = append(gotShapes, shape(word))
						}
						require.Equal(t, shapes(traceRuns(t, c.legacy, c.legacyClient)[i]), gotShapes,
							"as recorded by a client without flags")
					}
				}
			})
		})
	}
}

// promptOf returns the prompt_id of a recorded run.
func promptOf(t *testing.T, msgs []Message) string {
	var m struct {
		Data struct {
			PromptID string `json:"prompt_id"`
		}
	}
	require.NoError(t, json.Unmarshal(msgs[0].Data, &m))
	return m.Data.PromptID
}

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
	t.Parallel()
	type4 := string(imageWithMetadata(`{"image_type": "image/png"}`, "img"))
	type1 := string(image(formatPNG, "img"))
	upgraded, ok := withMetadata([]byte(type1), "p", "2")
	require.True(t, ok)
	up := string(upgraded)
	remote := "\x00\x00\x00\x07 something else"
	cases := map[string]struct {
		metadata bool
		in       []*frame
		out      []string
	}{
		"type 4 for a client that wants it": {
			true,
			[]*frame{step(ProgressState, "", "s"), step(Preview, "2", type4), step(Progress, "2", "1/2")},
			[]string{"s", type4, "1/2"},
		},
		"type 4 for a client that does not": {
			false,
			[]*frame{step(ProgressState, "", "s"), step(Preview, "2", type4), step(Progress, "2", "1/2"), step(ProgressState, "", "s2")},
			[]string{"s", "1/2", type1, "s2"},
		},
		"results likewise": {
			false,
			[]*frame{step(Executing, "2", "e"), step(Result, "2", type4), step(Progress, "2", "0/2"), step(Result, "2", type4), step(Progress, "2", "1/2"), step(Other, "", "end")},
			[]string{"e", "0/2", type1, "1/2", type1, "end"},
		},
		"without progress the order stays": {
			false,
			[]*frame{step(Result, "2", type4), step(Result, "2", type4), step(Executing, "3", "e")},
			[]string{type1, type1, "e"},
		},
		"type 1 for a client that does not want more": {
			false,
			[]*frame{step(Progress, "2", "1/2"), step(Preview, "2", type1), step(Progress, "2", "2/2"), step(Preview, "2", type1)},
			[]string{"1/2", type1, "2/2", type1},
		},
		"type 1 for a client that wants type 4": {
			true,
			[]*frame{step(Progress, "2", "1/3"), step(Preview, "2", type1), step(Progress, "2", "2/3"), step(Preview, "2", type1), step(Progress, "2", "3/3"), step(Other, "", "end")},
			[]string{"1/3", up, up, "2/3", "3/3", "end"},
		},
		"progress of another node does not wait": {
			true,
			[]*frame{step(Preview, "2", type1), step(Progress, "9", "1/3"), step(Preview, "2", type1)},
			[]string{up, "1/3", up},
		},
		"what is no image of ComfyUI's passes": {
			true,
			[]*frame{step(Preview, "2", remote), step(Result, "2", string(image(9, "x"))), {kind: Other, binary: true, data: []byte(type1)}},
			[]string{remote, string(image(9, "x")), type1},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
