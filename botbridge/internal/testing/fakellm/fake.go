// Package fakellm is a language model's endpoint for tests: OpenAI's chat completions, as
// far as the bridge uses them. It holds what it is asked, and what it answers when it is
// told nothing else, against a schema of what OpenAI publishes in its OpenAPI document.
package fakellm

import (
	"bytes"
	_ "embed" // the schema
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed testdata/chat.json
var schema []byte

const schemaURL = "doc:///chat.json"

// Key is the key that the fake takes, Model the model that it has.
const (
	Key   = "sk-fake-4242"
	Model = "fake-small"
)

// Asked is a call as it came.
type Asked struct {
	Model         string `json:"model"`
	MaxTokens     int    `json:"max_tokens"`
	MaxCompletion int    `json:"max_completion_tokens"`
	Messages      []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
}

// Words are what the user of a call said.
func (a Asked) Words() string { return a.Messages[len(a.Messages)-1].Content }

// Fake is an endpoint. It is safe for concurrent use.
type Fake struct {
	check map[string]*jsonschema.Schema

	mu     sync.Mutex
	asked  []Asked
	broken []error
	answer http.HandlerFunc
	words  func(Asked) string
}

// New returns an endpoint that answers with the words of the user, in capitals.
func New() (*Fake, error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(schemaURL, parsed); err != nil {
		return nil, err
	}
	f := &Fake{check: map[string]*jsonschema.Schema{}, words: func(a Asked) string { return strings.ToUpper(a.Words()) }}
	for _, name := range []string{"request", "response", "error"} {
		if f.check[name], err = compiler.Compile(schemaURL + "#/$defs/" + name); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Say makes the endpoint answer with these words.
func (f *Fake) Say(words string) { f.SayOf(func(Asked) string { return words }) }

// SayOf makes the endpoint answer with words that depend on the call.
func (f *Fake) SayOf(words func(Asked) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.words, f.answer = words, nil
}

// Misbehave makes the endpoint answer as a handler does, nil for its own answers. What
// that answers is not held against the schema.
func (f *Fake) Misbehave(answer http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// Calls returns all calls that were understood.
func (f *Fake) Calls() []Asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Asked(nil), f.asked...)
}

// Broken returns how calls and answers have violated the schema.
func (f *Fake) Broken() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]error(nil), f.broken...)
}

// ServeHTTP answers POST /v1/chat/completions.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	var asked Asked
	if err == nil {
		err = json.Unmarshal(body, &asked)
	}
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions":
		f.fail(w, http.StatusNotFound, "unknown_url", "")
		return
	case r.Header.Get("Authorization") != "Bearer "+Key:
		f.fail(w, http.StatusUnauthorized, "invalid_api_key", "")
		return
	case err != nil || !f.holds("request", body):
		f.fail(w, http.StatusBadRequest, "invalid_request", "")
		return
	}
	f.mu.Lock()
	f.asked = append(f.asked, asked)
	answer, words := f.answer, f.words
	f.mu.Unlock()
	switch {
	case answer != nil:
		answer(w, r)
		return
	case asked.Model != Model:
		f.fail(w, http.StatusNotFound, "model_not_found", "")
		return
	}
	f.send(w, http.StatusOK, "response", Completion(words(asked), "stop"))
}

// fail answers with an error as OpenAI does.
func (f *Fake) fail(w http.ResponseWriter, status int, code, param string) {
	said := map[string]any{"type": "invalid_request_error", "message": "no", "code": code, "param": nil}
	if param != "" {
		said["param"] = param
	}
	f.send(w, status, "error", map[string]any{"error": said})
}

// Completion is the body of an answer.
func Completion(words, reason string) map[string]any {
	return map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": Model,
		"choices": []any{map[string]any{
			"index": 0, "finish_reason": reason, "logprobs": nil,
			"message": map[string]any{"role": "assistant", "content": words, "refusal": nil},
		}},
		"usage": map[string]any{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
	}
}

// NoMaxTokens answers as models do that know only max_completion_tokens.
func (f *Fake) NoMaxTokens(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	last := f.asked[len(f.asked)-1]
	f.mu.Unlock()
	if last.MaxTokens > 0 {
		f.fail(w, http.StatusBadRequest, "unsupported_parameter", "max_tokens")
		return
	}
	f.send(w, http.StatusOK, "response", Completion("better", "stop"))
}

func (f *Fake) send(w http.ResponseWriter, status int, kind string, body any) {
	text, err := json.Marshal(body)
	if err != nil || !f.holds(kind, text) {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// holds reports whether a body is as the schema says.
func (f *Fake) holds(kind string, body []byte) bool {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = f.check[kind].Validate(value)
	}
	if err != nil {
		f.broken = append(f.broken, fmt.Errorf("%s: %w", kind, err))
	}
	return err == nil
}
