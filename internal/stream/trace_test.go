package stream

import (
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
	t.Helper()
	data := must(os.ReadFile(filepath.Join("testdata", name)))
	var trace struct{ Steps []traceStep }
	require.NoError(t, json.Unmarshal(data, &trace))
	var run []Message
	for _, s := range trace.Steps {
		if s.Client != client || s.Kind != "ws_text" && s.Kind != "ws_binary" {
			continue
		}
		m := s.message(t)
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

func (s traceStep) message(t *testing.T) Message {
	t.Helper()
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
	t.Helper()
	var m struct {
		Data struct {
			PromptID string `json:"prompt_id"`
		}
	}
	require.NoError(t, json.Unmarshal(msgs[0].Data, &m))
	return m.Data.PromptID
}
