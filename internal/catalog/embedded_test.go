package catalog_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	for name, test := range map[string]struct {
		graph string
		found []string
	}{
		"an input that uploads": {`{"1": {"class_type": "LoadImage", "inputs": {"image": "data:image/png;base64,AAAA"}}}`, []string{"1.image"}},
		"escaped":               {`{"1": {"class_type": "LoadImage", "inputs": {"image": "data:image\/png;base64,AAAA"}}}`, []string{"1.image"}},
		"an input that records": {`{"1": {"class_type": "LoadAudio", "inputs": {"audio": "data:,"}}}`, []string{"1.audio"}},
		"a file input that an old catalog does not know": {`{"1": {"class_type": "VHS_LoadVideo", "inputs": {"video": "data:;base64,AAAA"}}}`, []string{"1.video"}},
		"a text":                    {`{"1": {"class_type": "CLIPTextEncode", "inputs": {"text": "data:image/png;base64,AAAA"}}}`, nil},
		"a class that nobody knows": {`{"1": {"class_type": "Remote", "inputs": {"image": "data:image/png;base64,AAAA"}}}`, nil},
		"a link":                    {`{"1": {"class_type": "LoadImage", "inputs": {"image": ["data:;base64,AAAA", 0]}}}`, nil},
		"a name":                    {`{"1": {"class_type": "LoadImage", "inputs": {"image": "my data:.png"}}}`, nil},
		"not a graph":               {`["data:"]`, nil},
		"not a node":                {`{"1": "data:", "2": {"inputs": ["data:"]}, "3": {"class_type": 3, "inputs": {"image": "data:,"}}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := parseGraph(t, test.graph)
			var found []string
			for _, f := range cat.URLs(g, "data:") {
				found = append(found, f.Node+"."+f.Input)
			}
			require.Equal(t, test.found, found)
			require.Equal(t, strings.HasPrefix(test.graph, "{"), g.Mentions("data:"))
		})
	}
	require.False(t, parseGraph(t, `{"1": {"class_type": "LoadImage", "inputs": {"image": "a.png"}}}`).Mentions("data:", "https:"))
}

// refused are the parts of a refusal that tests look at.
type refused struct {
	Error  struct{ Type, Message string }
	Errors map[string]struct {
		Errors []struct {
			Type, Details string
			Extra         struct {
				InputName string `json:"input_name"`
			} `json:"extra_info"`
		}
		Outputs []string `json:"dependent_outputs"`
		Class   string   `json:"class_type"`
	} `json:"node_errors"`
}

// The graph of a refused data: URL has not been checked: it may have cycles and links
// that lead nowhere.
func TestRefuseInputs(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	g := parseGraph(t, `{
		"1": {"class_type": "LoadImage", "inputs": {"image": "data:a"}},
		"2": {"class_type": "ImageBlend", "inputs": {"image1": ["1", 0], "image2": ["2", 0]}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0]}},
		"4": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0], "x": ["2", 0]}},
		"5": {"class_type": "PreviewImage", "inputs": {"images": ["6", 0]}},
		"7": {"class_type": "LoadAudio", "inputs": {"audio": "data:b"}}, "8": 8}`)
	var complaints []catalog.Complaint
	for _, f := range cat.URLs(g, "data:") {
		complaints = append(complaints, catalog.Complaint{File: f, Reason: "wrong " + f.Value})
	}
	answer := cat.RefuseInputs(g, complaints)
	require.Equal(t, 400, answer.Status)
	var got refused
	require.NoError(t, json.Unmarshal(answer.Body, &got))
	require.Equal(t, "prompt_outputs_failed_validation", got.Error.Type)
	require.Len(t, got.Errors, 2)
	require.Equal(t, "image - Invalid image file: wrong data:a", got.Errors["1"].Errors[0].Details)
	require.Equal(t, "custom_validation_failed", got.Errors["1"].Errors[0].Type)
	require.Equal(t, "image", got.Errors["1"].Errors[0].Extra.InputName)
	require.Equal(t, []string{"3", "4"}, got.Errors["1"].Outputs)
	require.Equal(t, "audio - Invalid audio file: wrong data:b", got.Errors["7"].Errors[0].Details)
	require.Empty(t, got.Errors["7"].Outputs)
}

// Each refused input is followed down to the outputs once, not each output up to it.
func BenchmarkRefuseInputs(b *testing.B) {
	cat := fleet(info(b, newer))
	var graph strings.Builder
	graph.WriteString(`{"0": {"class_type": "LoadImage", "inputs": {"image": "data:a"}}`)
	for n := range 20_000 {
		fmt.Fprintf(&graph, `, "%d": {"class_type": "PreviewImage", "inputs": {"images": ["%d", 0]}}`, n+1, n)
	}
	g := parseGraph(b, graph.String()+"}")
	wrong := []catalog.Complaint{{File: cat.URLs(g, "data:")[0], Reason: "x"}}
	for b.Loop() {
		_ = cat.RefuseInputs(g, wrong)
	}
}
