package catalog_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// deviations are the recorded requests that the hub answers in another way
// than the real server did, each with its reason and the status of the hub.
var deviations = map[string]struct {
	status int
	reason string
}{
	"prompt_id: uuid upper case":       {200, "the hub takes any string as an id and gives instances a UUID"},
	"prompt_id: plain string":          {200, "idem"},
	"prompt_id: with slash and spaces": {200, "idem"},
	"prompt_id: empty string":          {200, "idem"},
	"prompt_id: number":                {200, "idem: an id that is no string counts as none"},
	"prompt_id: list":                  {200, "idem"},
	"prompt_id: unicode":               {200, "idem"},
	"prompt_id bad and prompt bad":     {400, "idem, so the graph is what is refused"},
	"custom validation fails":          {200, "only the instance can run the class's own validate function"},
	"custom validation raises":         {200, "idem"},
	"an old class that is gone is rewritten: SDV_img2vid_Conditioning": {200, "the missing _meta at which the server throws is added"},
	"an old class without _meta: 500":                                  {200, "idem"},
	"reached by an output of another type: the error speaks of the new class (CONDITIONING)": {
		200,
		"the instance replaces the class, so only it knows the types",
	},
}

// TestReplay sends every recorded POST /prompt to the package and compares the
// answers.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, v := range []release{older, newer} {
		cat := fleet(info(t, v))
		for _, r := range recordings(t, v) {
			t.Run(string(v)+"/"+r.Scenario+"/"+r.Label, func(t *testing.T) {
				t.Parallel()
				replay(t, cat, v, r)
			})
		}
	}
}

func replay(t *testing.T, cat *catalog.Catalog, v release, r recorded) {
	body := []byte(r.Body)
	if r.Label == "invalid utf-8" { // the recorder could not keep the byte
		body = []byte(strings.ReplaceAll(r.Body, "\uFFFD", "\xff"))
	}
	status, contentType, answer := ask(t, cat, v, body)
	if d, ok := deviations[r.Label]; ok {
		require.Equal(t, d.status, status, "%s: %s", d.reason, answer)
		return
	}
	if r.Status == 500 && strings.Contains(r.Scenario, "duplicate") {
		require.Equal(t, 200, status, "the hub never queues the same id twice at an instance")
		return
	}
	require.Equal(t, r.Status, status, "%s", answer)
	switch r.Status {
	case 500:
		assert.Equal(t, r.Answer, string(answer))
		assert.Equal(t, r.Type, contentType)
		return
	case 400:
		assert.Equal(t, r.Type, contentType)
	}
	if r.Status == 200 {
		requireNumber(t, body, r.Answer)
	}
	var want, got struct {
		Error      map[string]any            `json:"error"`
		NodeErrors map[string]map[string]any `json:"node_errors"`
	}
	require.NoError(t, json.Unmarshal([]byte(noTokens.Replace(r.Answer)), &want), r.Answer)
	require.NoError(t, json.Unmarshal(answer, &got))
	assert.Equal(t, comparable(want.Error), comparable(got.Error))
	require.Len(t, got.NodeErrors, len(want.NodeErrors), "%s", answer)
	for id, entry := range want.NodeErrors {
		assert.Equal(t, comparable(entry), comparable(got.NodeErrors[id]), "node %s", id)
	}
}

// requireNumber compares the number that a client asked for with the one that
// the server understood.
func requireNumber(t *testing.T, body []byte, answer string) {
	request := must.Get(catalog.ParseRequest(body))(t)
	v := must.Get(pyjson.Parse([]byte(answer)))(t)
	number, _ := v.(*pyjson.Object).Get("number")
	if request.Number != "" {
		require.Equal(t, number, pyjson.Value(request.Number))
		return
	}
	n, ok := number.(pyjson.Number).Int64()
	require.True(t, ok, "the server took its counter: %s", number)
	require.Equal(t, request.Front, n < 0)
}

// ask is what the handler of POST /prompt does, without a queue.
func ask(t *testing.T, cat *catalog.Catalog, v release, body []byte) (status int, contentType string, answer []byte) {
	request, err := catalog.ParseRequest(body)
	var refused *catalog.Answer
	if err != nil {
		require.ErrorAs(t, err, &refused)
		return refused.Status, refused.ContentType, refused.Body
	}
	verdict := cat.Validate(catalog.Prompt{
		Makes: func(q catalog.Question) bool { // what instances have refused before
			return q.Source == "" && bytes.Contains(cat.Class(q.Class, nil).Body(), []byte(`"comfy_extras.`))
		},
		Graph: request.Graph, Targets: request.Targets, Version: v,
		Known: func(ref job.FileRef) bool {
			return ref.Filename != "no-such.png" && ref.Type != "output" && strings.HasSuffix(ref.Filename, ".png")
		},
	})
	if refused = verdict.Answer; refused != nil {
		return refused.Status, refused.ContentType, refused.Body
	}
	require.NotEmpty(t, verdict.Outputs)
	return 200, "", []byte(`{"node_errors":` + marshal(verdict.NodeErrors) + `}`)
}

// noTokens takes out of answers what encoding/json refuses.
var noTokens = strings.NewReplacer("NaN", "0", "Infinity", "0")

// comparable leaves out what a hub cannot know or what has no order: the
// server's tracebacks, and the order that Python's sets have.
func comparable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if key == "traceback" {
				continue
			}
			out[key] = comparable(value)
		}
		if details, ok := v["details"].(string); ok && strings.Contains(details, "\n") {
			lines := strings.Split(details, "\n")
			slices.Sort(lines)
			out["details"] = lines
		}
		if errors, ok := out["errors"].([]any); ok {
			sortJSON(errors)
		}
		if dependents, ok := out["dependent_outputs"].([]any); ok {
			sortJSON(dependents)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = comparable(item)
		}
		return out
	}
	return v
}

func sortJSON(list []any) {
	slices.SortFunc(list, func(a, b any) int {
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		return strings.Compare(string(x), string(y))
	})
}
