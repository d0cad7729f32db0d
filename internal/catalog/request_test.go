package catalog_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func TestParseRequest(t *testing.T) {
	t.Parallel()
	r, err := catalog.ParseRequest([]byte(`{
		"prompt": {"3":{"inputs":{"seed":18446744073709551615}}}, "client_id":"c", "prompt_id":"p",
		"number": "2", "front": "false", "partial_execution_targets": ["9"],
		"extra_data": {"b": 1e2,"client_id":"other","api_key_comfy_org":"k\u00e9y", "extra_pnginfo" : {"workflow":{"id" :NaN}},"auth_token_comfy_org":null},
		"odd" : [1 ]}`))
	require.NoError(t, err)
	require.Equal(t, `{"3":{"inputs":{"seed":18446744073709551615}}}`, string(r.Graph.Bytes()))
	require.Equal(t, "c", r.ClientID)
	require.Equal(t, "p", r.PromptID)
	require.Equal(t, `"p"`, string(r.RawPromptID))
	require.Equal(t, pyjson.Number("2.0"), r.Number)
	require.True(t, r.Front, "a string that is not empty is true")
	require.Equal(t, `["9"]`, string(r.Targets))
	require.Equal(t, `{"b": 1e2, "extra_pnginfo": {"workflow":{"id" :NaN}}}`, string(r.Extra))
	require.Equal(t, `{"api_key_comfy_org": "k\u00e9y", "auth_token_comfy_org": null}`, string(r.Secrets))
	require.Equal(t, `{"odd": [1 ]}`, string(r.Other))

	r, err = catalog.ParseRequest([]byte(`{"prompt":{},"extra_data":{"client_id":"c" }}`))
	require.NoError(t, err)
	require.Equal(t, "c", r.ClientID, "extra_data.client_id counts too")
	require.Equal(t, "{}", string(r.Extra))
	require.Nil(t, r.Secrets)
	require.Nil(t, r.Other)
	require.Nil(t, r.Targets)
	require.Nil(t, r.RawPromptID)
	require.Empty(t, r.Number)
	require.False(t, r.Front)

	r, err = catalog.ParseRequest([]byte(`{"prompt":{},"client_id":null,"prompt_id":null,"extra_data":{ "client_id":{}, "x":1}}`))
	require.NoError(t, err)
	require.Empty(t, r.ClientID, "null in the body wins")
	require.Empty(t, r.PromptID)
	require.Equal(t, "null", string(r.RawPromptID))
}

func TestParseRequestKeepsExtraData(t *testing.T) {
	t.Parallel()
	r, err := catalog.ParseRequest([]byte(`{"prompt":{},"extra_data": { "a" :1,"a": 2 } }`))
	require.NoError(t, err)
	require.Equal(t, `{ "a" :1,"a": 2 }`, string(r.Extra), "without anything to hide the bytes stay")
}

func TestParseRequestRefuses(t *testing.T) {
	t.Parallel()
	const internalError = "500 Internal Server Error\n\nServer got itself in trouble"
	const noPrompt = `{"error": {"type": "no_prompt", "message": "No prompt provided", "details": "No prompt provided", "extra_info": {}}, "node_errors": {}}`
	const badClient = `{"error": {"type": "invalid_client_id", "message": "client_id must be a string", ` +
		`"details": "client_id must be the clientId of a websocket, a string; omit it if there is none", "extra_info": {}}, "node_errors": {}}`
	for body, want := range map[string]string{
		``: internalError, `{`: internalError, `nul`: internalError, "{\"a\":\"\xff\"}": internalError,
		`null`: internalError, `5`: internalError, `true`: internalError,
		`[]`: noPrompt, `["x"]`: noPrompt, `["prompt"]`: internalError, `["front"]`: internalError, `[["number"]]`: noPrompt,
		`"x"`: noPrompt, `"a prompt"`: internalError,
		`{}`: noPrompt, `{"extra_data":null}`: noPrompt,
		`{"number":"x"}`:                              internalError,
		`{"prompt":{},"number":null}`:                 internalError,
		`{"prompt":{},"number":[1]}`:                  internalError,
		`{"prompt":{},"extra_data":null}`:             internalError,
		`{"prompt":{},"extra_data":[]}`:               internalError,
		`{"prompt":{},"extra_data":"x"}`:              internalError,
		`{"prompt":{},"client_id":{}}`:                badClient,
		`{"prompt":{},"client_id":["a"]}`:             badClient,
		`{"prompt":{},"client_id":5}`:                 badClient,
		`{"prompt":{},"extra_data":{"client_id":{}}}`: badClient,
	} {
		_, err := catalog.ParseRequest([]byte(body))
		var answer *catalog.Answer
		require.ErrorAs(t, err, &answer, body)
		require.Equal(t, want, string(answer.Body), body)
		if want == internalError {
			require.Equal(t, 500, answer.Status)
			require.Equal(t, "text/plain; charset=utf-8", answer.ContentType)
		} else {
			require.Equal(t, 400, answer.Status)
			require.Equal(t, "application/json; charset=utf-8", answer.ContentType)
		}
		require.NotContains(t, err.Error(), "prompt_id", "errors do not quote the request")
	}
}

func TestParseRequestNumber(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]pyjson.Number{
		`1`: "1.0", `-2.5`: "-2.5", `" 1_0 "`: "10.0", `true`: "1.0", `"nan"`: "NaN", `"-inf"`: "-Infinity", `Infinity`: "Infinity",
	} {
		r, err := catalog.ParseRequest([]byte(`{"prompt":{},"number":` + in + `}`))
		require.NoError(t, err, in)
		require.Equal(t, want, r.Number, in)
	}
}

func FuzzParseRequest(f *testing.F) {
	for _, v := range []release{older, newer} {
		for _, r := range recordings(f, v) {
			f.Add([]byte(r.Body))
		}
	}
	f.Add([]byte(`{"prompt":{},"extra_data":{"api_key_comfy_org":"secret-secret","a":[{}]},"x":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := catalog.ParseRequest(body)
		if err != nil {
			var answer *catalog.Answer
			if !errors.As(err, &answer) || answer.Status < 400 || len(answer.Body) == 0 {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		for _, part := range [][]byte{r.Graph.Bytes(), r.Extra, r.Secrets, r.Other, r.Targets, r.RawPromptID} {
			if part == nil {
				continue
			}
			if _, err := pyjson.Parse(part); err != nil {
				t.Fatalf("%q: part %q: %v", body, part, err)
			}
		}
		v, _ := pyjson.Parse(r.Extra)
		extra, ok := v.(*pyjson.Object)
		if !ok {
			t.Fatalf("%q: extra_data %q is no object", body, r.Extra)
		}
		for _, key := range []string{"client_id", "api_key_comfy_org", "auth_token_comfy_org"} {
			if extra.Has(key) {
				t.Fatalf("%q: %s is left in %q", body, key, r.Extra)
			}
		}
	})
}

// What "Save" in the web UI writes is no prompt. Whoever posts it is told what it is, in ComfyUI's own shape.
func TestSavedWorkflowIsNoPrompt(t *testing.T) {
	t.Parallel()
	const saved = `{"id": "w", "nodes": [{"id": 1, "type": "SaveImage"}], "links": [], "version": 0.4}`
	for name, body := range map[string]string{
		"as the prompt":  `{"prompt": ` + saved + `, "client_id": "c"}`,
		"as the body":    saved,
		"without links":  `{"prompt": {"nodes": [], "version": 1}}`,
		"with a number":  `{"number": 3, "prompt": ` + saved + `}`,
		"nodes are none": `{"prompt": {"nodes": [], "links": []}}`,
	} {
		_, err := catalog.ParseRequest([]byte(body))
		var answer *catalog.Answer
		require.ErrorAs(t, err, &answer, name)
		require.Equal(t, 400, answer.Status, name)
		require.Contains(t, string(answer.Body), `{"error": {"type": "invalid_prompt", "message": "This is a workflow`, name)
		require.Contains(t, string(answer.Body), `\"Export (API)\"`, name)
		require.Contains(t, string(answer.Body), `"node_errors": {}`, name)
	}
	for name, body := range map[string]string{
		"a node that is called nodes": `{"prompt": {"nodes": {"class_type": "A", "inputs": {}}}}`,
		"beside a prompt":             `{"prompt": {}, "nodes": [], "links": []}`,
	} {
		_, err := catalog.ParseRequest([]byte(body))
		require.NoError(t, err, name)
	}
}
