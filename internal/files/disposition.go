package files

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// parseDisposition reads the name of a form field and of its file as ComfyUI's server does. The
// standard library's reader drops folders from file names, where ComfyUI refuses them, and keeps
// leading slashes, which ComfyUI drops. ok is false for a header without a name.
func parseDisposition(header string) (name, filename string, ok bool) {
	_, rest, _ := strings.Cut(header, ";")
	params := map[string]string{}
	for rest != "" {
		var key, value string
		key, rest, ok = strings.Cut(rest, "=")
		if !ok {
			break
		}
		key = strings.ToLower(strings.TrimSpace(key))
		value, rest = cutValue(strings.TrimLeft(rest, " \t"))
		if _, twice := params[key]; !twice {
			params[key] = value
		}
	}
	name, ok = params["name"]
	filename = params["filename"]
	if extended, given := params["filename*"]; given {
		if plain, ok := decodeExtended(extended); ok {
			filename = plain
		}
	}
	if !utf8.ValidString(filename) {
		return "", "", false
	}
	return name, filename, ok
}

// cutValue reads a value, quoted or not, up to the next semicolon.
func cutValue(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, ";")
		return strings.TrimSpace(value), rest
	}
	var b strings.Builder
	b.Grow(len(s) - 1)
	i := 1
	for ; i < len(s) && s[i] != '"'; i++ {
		c := s[i]
		switch {
		case c == '\\' && strings.HasPrefix(s[i+1:], `"`):
			i, c = i+1, '"'
		case b.Len() == 0 && (c == '/' || c == '\\'):
			continue // slashes at the start are dropped
		case c == '\\' && i+1 < len(s):
			i, c = i+1, s[i+1] // a backslash may escape any character
		}
		b.WriteByte(c)
	}
	_, rest, _ = strings.Cut(s[min(i+1, len(s)):], ";")
	return b.String(), rest
}

// decodeExtended reads charset'language'percent-encoded.
func decodeExtended(s string) (string, bool) {
	charset, rest, ok := strings.Cut(s, "'")
	_, encoded, ok2 := strings.Cut(rest, "'")
	if !ok || !ok2 || (charset != "" && !strings.EqualFold(charset, "utf-8")) {
		return "", false
	}
	plain, err := url.PathUnescape(encoded)
	return plain, err == nil
}
