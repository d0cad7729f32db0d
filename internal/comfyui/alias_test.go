package comfyui

import (
	"encoding/json"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
)

func TestAlias(t *testing.T) {
	t.Parallel()
	const long = "0f0e0d0c-0b0a-0908-0706-050403020100"
	for _, c := range []struct{ id, kind, in, want string }{
		{long, "query", "a=b&clientId=" + long, "a=b&clientId=ALIAS"},
		{long, "query", "who=" + long + "&x=1" + long, "who=ALIAS&x=1" + long},
		{"me", "query", "client_id=me&text=me&sid=me", "client_id=ALIAS&text=me&sid=ALIAS"},
		{"a b", "query", "client_id=a+b&clientId=a%20b", "client_id=ALIAS&clientId=ALIAS"},
		{long, "path", "/panel/" + long + "/x", "/panel/ALIAS/x"},
		{long, "path", "/panel/x" + long, "/panel/x" + long},
		{"panel", "path", "/panel/x", "/panel/x"},
		{long, "body", `{"a": "` + long + `", "b": ["` + long + `"]}`, `{"a": "ALIAS", "b": ["ALIAS"]}`},
		{long, "body", "x" + long + " " + long + "-1 " + long, "x" + long + " " + long + "-1 ALIAS"},
		{
			long, "body", "--b\r\nContent-Disposition: form-data; name=\"sid\"\r\n\r\n" + long + "\r\n--b--",
			"--b\r\nContent-Disposition: form-data; name=\"sid\"\r\n\r\nALIAS\r\n--b--",
		},
		{
			"me", "body", `{"text": "me", "client_id":"me", "clientId" : "me", "x": {"sid": "me"}, "my_client_id": "me"}`,
			`{"text": "me", "client_id":"ALIAS", "clientId" : "ALIAS", "x": {"sid": "ALIAS"}, "my_client_id": "me"}`,
		},
		{"me", "body", "client_id=me&text=me&sid=me", "client_id=ALIAS&text=me&sid=ALIAS"},
		{`.*`, "body", `{"client_id": "xx", "sid": ".*"}`, `{"client_id": "xx", "sid": "ALIAS"}`},
		{"", "body", `{"client_id": ""}`, `{"client_id": ""}`},
		// JSON stays JSON, whatever a client is called.
		{
			`0123456789abcdef\`, "body", `{"client_id": "0123456789abcdef\\", "text": "0123456789abcdef\\"}`,
			`{"client_id": "ALIAS", "text": "0123456789abcdef\\"}`,
		},
		{
			"1234567890123456", "body", `{"seed": 1234567890123456, "a": ["1234567890123456"]}`,
			`{"seed": 1234567890123456, "a": ["ALIAS"]}`,
		},
		{"1, 2, 3, 4, 5, 6", "body", `[1, 2, 3, 4, 5, 6, "1, 2, 3, 4, 5, 6"]`, `[1, 2, 3, 4, 5, 6, "ALIAS"]`},
		{"nnnnnnnnnnnnnnnn", "body", `["\nnnnnnnnnnnnnnnn", "nnnnnnnnnnnnnnnn"]`, `["\nnnnnnnnnnnnnnnn", "ALIAS"]`},
	} {
		a := Alias{Client: c.id, Upstream: "ALIAS"}
		got := ""
		switch c.kind {
		case "query":
			got = a.InQuery(c.in)
		case "path":
			got = a.InPath(aiohttp.MustPath(c.in)).Decoded()
		case "body":
			got = string(a.InBody([]byte(c.in)))
		}
		require.Equal(t, c.want, got, c.in)
	}
}

func TestAliasOutside(t *testing.T) {
	t.Parallel()
	a := Alias{Client: `my "own" \ id`, Upstream: "0123456789abcdef0123456789abcdef"}
	var got map[string]string
	require.NoError(t, json.Unmarshal(a.Outside([]byte(`{"sid": "`+a.Upstream+`"}`)), &got))
	require.Equal(t, map[string]string{"sid": a.Client}, got)
}

func TestClientsNamed(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"a", "b", "c", "e"}, ClientsNamed(
		url.Values{"clientId": {"a"}, "client_id": {"b"}, "x": {"y"}},
		[]byte(`{"sid": "c", "client_id": "a", "deep": {"client_id": "d"}, "clientID": "e", "clientid": 7}`)))
	require.Empty(t, ClientsNamed(nil, []byte(`[{"client_id": "a"}`)))
}

// FuzzAlias: whatever a client is called, what an instance is sent stays JSON,
// and what comes back is what went out.
func FuzzAlias(f *testing.F) {
	f.Add("0f0e0d0c0b0a09080706050403020100", "text")
	f.Add("me", "me")
	f.Add("\"\\\x00é", "client_id")
	f.Add(`0123456789abcdef\`, "0")
	f.Add("1234567890123456", "[1234567890123456]")
	f.Add("nnnnnnnnnnnnnnnn", "\nnnnnnnnnnnnnnnn")
	f.Fuzz(func(t *testing.T, id, text string) {
		if id == "" {
			return
		}
		a := Alias{Client: id, Upstream: "0123456789abcdef0123456789abcdef"}
		value := quoted(text)
		if json.Valid([]byte(text)) {
			value = []byte(text)
		}
		in := slices.Concat([]byte(`{"client_id": `), quoted(id), []byte(`, "text": `), value, []byte(`}`))
		if !json.Valid(in) {
			return
		}
		out := a.InBody(in)
		require.True(t, json.Valid(out), "%s", out)
		_ = a.InQuery(text)
		require.True(t, json.Valid(a.Outside(out)))
	})
}
