package plain

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func parsed(t testing.TB, body string) pyjson.Value {
	t.Helper()
	v, err := pyjson.Parse([]byte(body))
	require.NoError(t, err)
	return v
}

func TestOrder(t *testing.T) {
	t.Parallel()
	o, err := readOrder(parsed(t, `{"workflow": {"1": {"seed": 18446744073709551615}}, "service": "comfyui", "priority": -100, "band": "bulk",
		"idempotency_key": "k", "client_id": "ann", "extra_data": {"note": 1, "api_key_comfy_org": "secret"}}`))
	require.NoError(t, err)
	require.Equal(t, -100, o.priority)
	require.Equal(t, job.Bulk, o.band)
	require.Equal(t, "k", o.key)
	require.Equal(t, "ann", o.request.ClientID)
	require.Equal(t, `{"1": {"seed": 18446744073709551615}}`, string(o.request.Graph.Bytes()), "byte for byte")
	require.NotContains(t, string(o.request.Extra), "secret")
	require.Contains(t, string(o.request.Secrets), "secret")
	require.Equal(t, "{}", string(mustOrder(t, `{"workflow": {}}`).request.Extra))
}

func TestOrderForA1111(t *testing.T) {
	t.Parallel()
	graph := string(mustOrder(t, `{"service": "a1111", "workflow": {"prompt": "<lora:ink:1>", "override_settings": {"sd_model_checkpoint": "sd"}}}`).request.Graph.Bytes())
	for _, part := range []string{a1111.ClassTxt2Img, `{"checkpoint": "sd"}`, `{"lora": "ink"}`} {
		require.Contains(t, graph, part)
	}
	require.Contains(t, string(mustOrder(t, `{"service": "a1111", "workflow": {"init_images": []}}`).request.Graph.Bytes()), a1111.ClassImg2Img)
	_, err := readOrder(parsed(t, `{"service": "a1111"}`))
	require.ErrorContains(t, err, "workflow: is missing")
}

func mustOrder(t testing.TB, body string) order {
	t.Helper()
	o, err := readOrder(parsed(t, body))
	require.NoError(t, err)
	return o
}

func TestIDsOfKeys(t *testing.T) {
	t.Parallel()
	require.Equal(t, idOf("ann", "k"), idOf("ann", "k"))
	ids := map[string]bool{}
	for _, pair := range [][2]string{{"ann", "k"}, {"an", "nk"}, {"ann", "l"}, {"", "annk"}, {"bob", "k"}} {
		ids[idOf(pair[0], pair[1])] = true
	}
	require.Len(t, ids, 5)
}

func FuzzOrder(f *testing.F) {
	for _, seed := range []string{
		`{"workflow": {"1": {"class_type": "A", "inputs": {}}}, "priority": 5, "band": "bulk", "service": "comfyui"}`,
		`{"workflow": {"nodes": [], "links": []}}`, `{"service": "a1111", "workflow": {"prompt": "<lora:a:1>", "init_images": ["x"]}}`, `{"workflow": {}, "priority": 1e400}`,
		`{"workflow": {}, "extra_data": {"client_id": 5}, "idempotency_key": "x", "callback_url": "http://a/"}`, `[]`, `null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v, err := pyjson.Parse(body)
		if err != nil {
			return
		}
		o, err := readOrder(v)
		var answer *catalog.Answer
		if err != nil {
			require.True(t, errors.As(err, &answer) || err.Error() != "")
			return
		}
		require.LessOrEqual(t, len(o.key), maxKey)
		require.LessOrEqual(t, o.priority, job.MaxPriority)
		require.GreaterOrEqual(t, o.priority, job.MinPriority)
		require.NotNil(t, o.request)
	})
}
