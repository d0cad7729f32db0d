package fakediscord

import (
	"bytes"
	_ "embed" // Discord's document
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed testdata/openapi.json
var document []byte

//go:embed testdata/gateway.json
var gatewayDocument []byte

// schema is the part of Discord's OpenAPI document that the bridge uses.
type schema struct {
	paths map[string]map[string]struct {
		Request   json.RawMessage            `json:"request"`
		Responses map[string]json.RawMessage `json:"responses"`
	}

	mu       sync.Mutex
	compiler *jsonschema.Compiler
}

const (
	schemaURL  = "doc:///openapi.json"
	gatewayURL = "doc:///gateway.json"
)

func loadSchema() (*schema, error) {
	s := &schema{compiler: jsonschema.NewCompiler()}
	for at, text := range map[string][]byte{schemaURL: document, gatewayURL: gatewayDocument} {
		parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		if err := s.compiler.AddResource(at, parsed); err != nil {
			return nil, err
		}
	}
	var whole struct {
		Paths json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(document, &whole); err != nil {
		return nil, err
	}
	return s, json.Unmarshal(whole.Paths, &s.paths)
}

// match returns the route of a path, and the values of its parts; false if the document
// has none.
func (s *schema) match(method, path string) (route string, values []string, ok bool) {
	parts := strings.Split(path, "/")
	for candidate, methods := range s.paths {
		wanted := strings.Split(candidate, "/")
		if _, has := methods[strings.ToLower(method)]; !has || len(wanted) != len(parts) {
			continue
		}
		values, ok = nil, true
		for i, part := range wanted {
			if strings.HasPrefix(part, "{") {
				values = append(values, parts[i])
			} else if part != parts[i] {
				ok = false
				break
			}
		}
		if ok {
			return candidate, values, true
		}
	}
	return "", nil, false
}

// request returns what is wrong with the body of a call.
func (s *schema) request(method, route string, body []byte) error {
	method = strings.ToLower(method)
	if len(s.paths[route][method].Request) == 0 {
		if len(body) > 0 {
			return fmt.Errorf("%s %s takes no body", method, route)
		}
		return nil
	}
	return s.check(schemaURL+fmt.Sprintf("#/paths/%s/%s/request", escape(route), method), body)
}

// response returns what is wrong with an answer.
func (s *schema) response(method, route string, status int, body []byte) error {
	method = strings.ToLower(method)
	code := fmt.Sprint(status)
	found, ok := s.paths[route][method].Responses[code]
	switch {
	case !ok:
		return fmt.Errorf("%s %s does not answer with %d", method, route, status)
	case slices.Equal(bytes.TrimSpace(found), []byte("null")):
		if len(body) > 0 {
			return fmt.Errorf("%s %s answers %d without a body", method, route, status)
		}
		return nil
	}
	return s.check(schemaURL+fmt.Sprintf("#/paths/%s/%s/responses/%s", escape(route), method, code), body)
}

// frame returns what is wrong with a message of the gateway; sent means that the bot says it.
func (s *schema) frame(sent bool, data []byte) error {
	var f struct {
		Op int    `json:"op"`
		T  string `json:"t"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	name := "/received/" + f.T
	if f.T == "" {
		name = fmt.Sprintf("/received/%d", f.Op)
	}
	if sent {
		name = fmt.Sprintf("/sent/%d", f.Op)
	}
	return s.check(gatewayURL+"#"+name, data)
}

// check holds a text against the part of a document that a URL names.
func (s *schema) check(part string, body []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	compiled, err := s.compiler.Compile(part)
	if err != nil {
		return err
	}
	return compiled.Validate(value)
}

// escape makes a part of a JSON pointer in a URL.
func escape(part string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(part)
}
