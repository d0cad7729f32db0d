package plain

import (
	"bytes"
	_ "embed" // the document and the page
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"sync"

	"github.com/comfyhub/comfyhub/internal/api"
)

//go:embed openapi.json
var document []byte

//go:embed docs.html
var page string

// getDocument answers GET /openapi.json.
func (o *room) getDocument(w http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) {
	api.WriteJSON(w, http.StatusOK, document)
}

// docs makes the handler of GET /docs: the document as a page that loads nothing else. It
// is made at the first request.
func docs() api.Handler {
	made := sync.OnceValues(func() ([]byte, error) { return renderDocs(document) })
	return func(w http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) {
		body, err := made()
		if err != nil {
			writeProblem(w, http.StatusNotFound, "The page cannot be made")
			return
		}
		api.AsPage(w)
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		_, _ = w.Write(body)
	}
}

// schema is what the page shows of one.
type schema struct {
	Ref         string `json:"$ref"`
	Type        any
	Enum        []string
	Description string
	Properties  map[string]schema
	Required    []string
	Items       *schema
	AnyOf       []schema
}

// Kind is the type of a value in a few words.
func (s schema) Kind() string {
	switch {
	case s.Ref != "":
		return s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	case len(s.Enum) > 0:
		return strings.Join(s.Enum, " | ")
	case s.Items != nil:
		return "array of " + s.Items.Kind()
	case len(s.AnyOf) > 0:
		kinds := make([]string, len(s.AnyOf))
		for n, one := range s.AnyOf {
			kinds[n] = one.Kind()
		}
		return strings.Join(kinds, " or ")
	}
	return strings.NewReplacer("[", "", "]", "", " ", " or ").Replace(fmt.Sprint(s.Type))
}

// answer is one that an operation may give, or a reference to it.
type answer struct {
	Ref         string `json:"$ref"`
	Description string
}

// reading is the part of the document that the page shows.
type reading struct {
	Info  struct{ Title, Description string }
	Paths map[string]map[string]struct {
		Summary, Description string
		Responses            map[string]answer
	}
	Components struct {
		Responses map[string]answer
		Schemas   map[string]schema
	}
}

// renderDocs makes a page of an OpenAPI document.
func renderDocs(document []byte) ([]byte, error) {
	var doc reading
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, err
	}
	for _, methods := range doc.Paths {
		for _, operation := range methods {
			for status, a := range operation.Responses {
				if name := a.Ref[strings.LastIndex(a.Ref, "/")+1:]; name != "" {
					operation.Responses[status] = doc.Components.Responses[name]
				}
			}
		}
	}
	t, err := template.New("docs").Funcs(template.FuncMap{"upper": strings.ToUpper}).Parse(page)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, struct {
		reading

		Prefix string
	}{doc, Prefix})
	return out.Bytes(), err
}
