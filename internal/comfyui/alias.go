package comfyui

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Alias is the name that a client has at one instance. Routes of custom nodes
// answer later, over the socket of the client id that a call names. The hub has
// that socket, under an id that nobody else can know or choose: two tenants, or
// two hubs, may well have clients of one id.
type Alias struct {
	// Client is the client's own id, Upstream its id at the instance.
	Client, Upstream string
}

// clientKeys are the names under which requests carry a client id.
var clientKeys = [...]string{"clientId", "client_id", "clientID", "clientid", "sid"}

const clientKeyPattern = `(?:clientId|client_id|clientID|clientid|sid)`

// distinctive is the length from which an id is taken for one wherever it stands.
// A shorter one may be any word, so it counts only under its usual names.
const distinctive = 16

// MaxNamingBody bounds the bodies in which ids are looked for, in bytes.
const MaxNamingBody = 1 << 20

// ClientsNamed lists the client ids that a request names by their usual names in
// its query or in its JSON body.
func ClientsNamed(query url.Values, body []byte) []string {
	var ids []string
	add := func(id string) {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, key := range clientKeys {
		add(query.Get(key))
	}
	pyjson.Members(body, func(key string, value []byte) {
		if slices.Contains(clientKeys[:], key) {
			add(pyjson.Unquote(value))
		}
	})
	return ids
}

// InQuery replaces the client's id in a raw query.
func (a Alias) InQuery(raw string) string {
	return aiohttp.MapValues(raw, func(key, value string) string {
		if value == a.Client && value != "" && (len(value) >= distinctive || slices.Contains(clientKeys[:], key)) {
			return a.Upstream
		}
		return value
	})
}

// InPath replaces the client's id where it is a whole segment of a path.
func (a Alias) InPath(path aiohttp.Path) aiohttp.Path {
	if len(a.Client) < distinctive || strings.Contains(path.String(), "%") {
		return path
	}
	segments := strings.Split(path.Decoded(), "/")
	i := slices.Index(segments, a.Client)
	if i < 0 {
		return path
	}
	segments[i] = a.Upstream
	if renamed, err := aiohttp.ReadPath(&url.URL{Path: strings.Join(segments, "/")}); err == nil {
		return renamed
	}
	return path
}

// stringLiteral matches a string of a valid JSON text, with its quotes.
var stringLiteral = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// InBody replaces the client's id in a text. JSON stays JSON: an id with
// characters that JSON escapes counts only under its usual names.
func (a Alias) InBody(text []byte) []byte {
	if a.Client == "" {
		return text
	}
	if id := []byte(a.Client); len(id) >= distinctive && slices.Equal(quoted(a.Client), slices.Concat([]byte{'"'}, id, []byte{'"'})) {
		word := func(text []byte) []byte { return replaceWord(text, id, []byte(a.Upstream)) }
		if json.Valid(text) {
			// Only in strings: an id may look like a seed, too.
			return stringLiteral.ReplaceAllFunc(text, word)
		}
		return word(text)
	}
	named := regexp.MustCompile(`("` + clientKeyPattern + `"\s*:\s*)` + regexp.QuoteMeta(string(quoted(a.Client))) +
		`|((?:^|&)` + clientKeyPattern + `=)` + regexp.QuoteMeta(url.QueryEscape(a.Client)) + `(&|$)`)
	return named.ReplaceAllFunc(text, func(match []byte) []byte {
		parts := named.FindSubmatch(match)
		if len(parts[1]) > 0 {
			return append(bytes.Clone(parts[1]), quoted(a.Upstream)...)
		}
		return slices.Concat(parts[2], []byte(a.Upstream), parts[3])
	})
}

// Outside gives a text of the instance its client's own id back.
func (a Alias) Outside(text []byte) []byte {
	id := quoted(a.Client)
	return bytes.ReplaceAll(text, []byte(a.Upstream), id[1:len(id)-1])
}

// replaceWord replaces a text where it is not a part of a longer word.
func replaceWord(in, old, new []byte) []byte {
	var out []byte
	rest := in
	for {
		i := bytes.Index(rest, old)
		if i < 0 {
			break
		}
		end := i + len(old)
		out = append(out, rest[:i]...)
		before := len(in) - len(rest) + i - 1
		if before >= 0 && isWord(in[before]) || end < len(rest) && isWord(rest[end]) {
			out = append(out, rest[i:end]...)
		} else {
			out = append(out, new...)
		}
		rest = rest[end:]
	}
	return append(out, rest...)
}

// isWord reports whether a byte belongs to a word, or begins an escape of one.
func isWord(c byte) bool {
	return c == '\\' || c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// MayNameClients reports whether a request has a body in which ids are looked for.
func MayNameClients(r *http.Request) bool {
	if r.ContentLength <= 0 || r.ContentLength > MaxNamingBody || r.Header.Get("Content-Encoding") != "" {
		return false
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return slices.Contains([]string{
		"", "application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
	}, strings.ToLower(strings.TrimSpace(kind)))
}

// unalias gives an answer its clients' own ids back, where it is a short text.
func unalias(resp *http.Response, aliases []Alias) error {
	kind := resp.Header.Get("Content-Type")
	if len(aliases) == 0 || resp.ContentLength <= 0 || resp.ContentLength > MaxNamingBody || resp.Header.Get("Content-Encoding") != "" ||
		!strings.HasPrefix(kind, "text/") && !strings.HasPrefix(kind, "application/json") || resp.StatusCode == http.StatusPartialContent {
		return nil
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return err
	}
	for _, a := range aliases {
		text = a.Outside(text)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Del("Content-Length") // as net/http writes it from the body's
	return nil
}

// IsCustom reports whether a message is one that only custom nodes send.
func (m Message) IsCustom() bool {
	switch m.Type {
	case TypeStatus, TypeExecutionStart, TypeExecutionCached, TypeExecuting, TypeProgress, TypeProgressState, TypeExecuted,
		TypeExecutionSuccess, TypeExecutionError, TypeExecutionInterrupted, TypeFeatureFlags, "logs":
		return false
	}
	return true
}
