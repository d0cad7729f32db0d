package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
)

// contract is the OpenAPI document of the plain job API, as a hub serves it. The schemas
// of OpenAPI 3.1 are those of JSON Schema 2020-12.
type contract struct {
	t        testing.TB
	document map[string]any
	compiler *jsonschema.Compiler
}

func (b *bench) contract() contract {
	b.t.Helper()
	body := b.gets("/hub/v1/openapi.json")
	document := must(jsonschema.UnmarshalJSON(bytes.NewReader(body)))(b.t)
	c := contract{b.t, document.(map[string]any), jsonschema.NewCompiler()}
	require.NoError(b.t, c.compiler.AddResource("doc:///openapi.json", document))
	return c
}

// at follows a JSON pointer.
func (c contract) at(pointer string) map[string]any {
	var v any = c.document
	for _, name := range strings.Split(pointer, "/")[1:] {
		o, _ := v.(map[string]any)
		v = o[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	}
	o, _ := v.(map[string]any)
	return o
}

// documents checks that an answer is one that the document describes.
func (c contract) documents(method, path string, status int, contentType string, body []byte) {
	c.t.Helper()
	pointer := fmt.Sprintf("/paths/%s/%s/responses/%d", strings.ReplaceAll(path, "/", "~1"), strings.ToLower(method), status)
	require.NotNil(c.t, c.at(pointer), "%s %s: %d is not documented: %s", method, path, status, body)
	if ref, ok := c.at(pointer)["$ref"].(string); ok {
		pointer = strings.TrimPrefix(ref, "#")
	}
	kind, _, err := mime.ParseMediaType(contentType)
	require.NoError(c.t, err)
	pointer += "/content/" + strings.ReplaceAll(kind, "/", "~1") + "/schema"
	require.NotNil(c.t, c.at(pointer), "%s %s: %d: %s is not documented", method, path, status, kind)
	if kind != "application/json" {
		return
	}
	schema := must(c.compiler.Compile("doc:///openapi.json#" + pointer))(c.t)
	answer := must(jsonschema.UnmarshalJSON(bytes.NewReader(body)))(c.t)
	require.NoError(c.t, schema.Validate(answer), string(body))
}

// Every route of the document is there, and answers as it says.
func TestPlainDocument(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.TenantLimits = config.TenantLimits{Waiting: 1, Sockets: 1} }), func(t *testing.T, b *bench) {
		b.tenant = "ann"
		c := b.contract()
		ask := func(method, path, id, body string) string {
			t.Helper()
			status, header, answer := b.ask(method, "/hub/v1"+strings.Replace(path, "{id}", id, 1), body, nil)
			route, _, _ := strings.Cut(path, "?")
			c.documents(method, route, status, header.Get("Content-Type"), []byte(answer))
			var known struct{ ID string }
			_ = json.Unmarshal([]byte(answer), &known) // some answers are text
			return known.ID
		}
		order := func(graph string) string { return `{"workflow": ` + graph + `}` }
		ended := ask("POST", "/submit", "", order(picture(1)))
		ask("GET", "/wait/{id}", ended, "")
		running := ask("POST", "/submit", "", order(endless(1)))
		eventually(t, func() bool { return b.plain("/status/"+running).Status == "processing" }, time.Minute, 5*time.Millisecond)
		waiting := ask("POST", "/submit", "", order(picture(2)))
		ask("POST", "/submit", "", order(picture(3))) // one too many
		for _, body := range []string{"", "[]", `{"workflow": {}}`, `{"workflow": {"1": 5}}`, order(strings.Replace(picture(1), "64", `"x"`, 1)), `{"service": "a1111"}`} {
			ask("POST", "/submit", "", body)
		}
		held, err := http.Get(b.web.URL + "/events/" + running)
		require.NoError(t, err)
		for _, id := range []string{ended, running, waiting, "none", "%01"} {
			ask("GET", "/status/{id}", id, "")
			ask("GET", "/wait/{id}?timeout=0.01", id, "") // one too many, for those that have not ended
			ask("GET", "/wait/{id}?timeout=x", id, "")
		}
		held.Body.Close()
		ask("GET", "/stats", "", "")
		for _, id := range []string{ended, waiting, running, "none", "%01"} {
			ask("POST", "/cancel/{id}", id, "")
			ask("GET", "/status/{id}", id, "")
		}
		page := b.gets("/hub/v1/docs")
		for path := range c.at("/paths") {
			for method, operation := range c.at("/paths/" + strings.ReplaceAll(path, "/", "~1")) {
				summary := operation.(map[string]any)["summary"].(string)
				require.Contains(t, string(page), "<code>"+strings.ToUpper(method)+" /hub/v1"+path+"</code><td>"+summary+".")
			}
		}
		require.NotContains(t, string(page), "<script")
		require.NotContains(t, string(page), "http://")
	})
}
