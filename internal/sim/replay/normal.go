package replay

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Values that differ from run to run are replaced by their kind before a recorded
// and a simulated answer are compared.
var (
	pictureNumber = regexp.MustCompile(`_\d{5}_`)
	tempLetters   = regexp.MustCompile(`ComfyUI_temp_[a-z]{5}_`)
	userSuffix    = regexp.MustCompile(`_[0-9a-f]{8}-[0-9a-f-]{27}$`)
	plainHex      = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

// volatile are members whose value is a time.
var volatile = []string{
	"timestamp", "create_time", "execution_start_time", "execution_end_time", "modified", "created",
}

// unordered are members that Python fills from a set.
var unordered = []string{"executed", "current_outputs", "dependent_outputs", "errors"}

// normal converts a JSON value into a form in which equal behaviour looks equal.
func normal(v pyjson.Value, key string) pyjson.Value {
	switch v := v.(type) {
	case pyjson.String:
		return pyjson.String(normalText(string(v), key))
	case pyjson.Number:
		if slices.Contains(volatile, key) {
			if v.IsInt() {
				return pyjson.String("<int time>")
			}
			return pyjson.String("<float time>")
		}
		return v
	case pyjson.Array:
		return normalArray(v, key)
	case *pyjson.Object:
		return normalObject(v, key)
	}
	return v
}

func normalText(s, key string) string {
	s = tempLetters.ReplaceAllString(s, "ComfyUI_temp_*_")
	switch {
	case strings.HasPrefix(s, "tensor("), strings.Contains(s, "<object>"), strings.HasPrefix(s, "{'samples'"):
		return "<printed>"
	case key == "sid" && plainHex.MatchString(s):
		return "<sid>"
	case key == "details" && strings.Contains(s, "\n"):
		lines := strings.Split(s, "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	return userSuffix.ReplaceAllString(s, "_<uuid>")
}

func normalArray(v pyjson.Array, key string) pyjson.Value {
	if key == "traceback" {
		return pyjson.Array{} // Python's frames do not exist here
	}
	out := make(pyjson.Array, len(v))
	for i, item := range v {
		out[i] = normal(item, key)
	}
	sorted := slices.Contains(unordered, key)
	if len(v) == 5 {
		if ids, ok := out[4].(pyjson.Array); ok { // a queue item
			slices.SortFunc(ids, compareJSON)
		}
	}
	if sorted {
		slices.SortFunc(out, compareJSON)
	}
	return out
}

func compareJSON(a, b pyjson.Value) int {
	return strings.Compare(string(pyjson.Marshal(a)), string(pyjson.Marshal(b)))
}

func normalObject(v *pyjson.Object, key string) pyjson.Value {
	keys := v.Keys()
	if key == "node_errors" || key == "outputs" || key == "meta" {
		slices.Sort(keys)
	}
	out := &pyjson.Object{}
	for _, k := range keys {
		member, _ := v.Get(k)
		out.Set(normalText(k, ""), normal(member, k))
	}
	return out
}

// normalBody is the comparable form of a text body.
func normalBody(text string) string {
	if v, err := pyjson.Parse([]byte(text)); err == nil {
		return indent(normal(v, ""), "")
	}
	return normalText(text, "")
}

// indent prints a value with one member per line, so that differences can be read.
func indent(v pyjson.Value, margin string) string {
	var b strings.Builder
	switch v := v.(type) {
	case pyjson.Array:
		b.WriteString("[\n")
		for _, item := range v {
			b.WriteString(margin + "  " + indent(item, margin+"  ") + "\n")
		}
		b.WriteString(margin + "]")
	case *pyjson.Object:
		b.WriteString("{\n")
		for k, item := range v.All() {
			b.WriteString(margin + "  " + k + ": " + indent(item, margin+"  ") + "\n")
		}
		b.WriteString(margin + "}")
	default:
		return string(pyjson.Marshal(v))
	}
	return b.String()
}

// shownHeaders are compared by value.
var shownHeaders = []string{
	"Content-Type", "Content-Disposition", "Cache-Control", "Pragma", "Expires", "Allow", "Accept-Ranges", "Vary",
	"X-Content-Type-Options", "Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
	"Access-Control-Allow-Credentials", "Content-Security-Policy", "Content-Encoding",
}

// presentHeaders are compared by their presence only.
var presentHeaders = []string{"Etag", "Last-Modified", "Content-Range"}

func normalHeaders(get func(string) string) string {
	var lines []string
	for _, name := range shownHeaders {
		if v := get(name); v != "" {
			lines = append(lines, name+": "+v)
		}
	}
	for _, name := range presentHeaders {
		if get(name) != "" {
			lines = append(lines, name+": ...")
		}
	}
	return strings.Join(lines, "\n")
}

func recordedHeader(o *pyjson.Object) func(string) string {
	return func(name string) string {
		for key, v := range o.All() {
			if strings.EqualFold(key, name) {
				return latin1(text(v))
			}
		}
		return ""
	}
}

// latin1 undoes the recorder's reading of header bytes as Latin-1.
func latin1(s string) string {
	raw := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xFF {
			return s
		}
		raw = append(raw, byte(r))
	}
	return string(raw)
}

// binaryShape is the part of a binary frame that is compared.
func binaryShape(decoded *pyjson.Object) string {
	event, _ := decoded.Get("event")
	shape := fmt.Sprintf("binary event %s", text(event))
	if meta := decoded.String("metadata_text"); meta != "" {
		shape += " " + normalBody(meta)
	}
	if kind, ok := decoded.Get("image_type"); ok {
		shape += " type " + text(kind)
	}
	return shape
}
