package caddymodule

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

const (
	// prefixHeader names what a proxy has taken off the start of the path.
	prefixHeader = "X-Forwarded-Prefix"
	// maxPrefix bounds a prefix, in bytes: it begins every URL of an answer.
	maxPrefix = 256
)

// prefixOf is the path below which the client sees the site, escaped and without a slash at
// its end; "" for the root. It is the one place that decides: it is what the proxies in front
// have taken off the path, by the word of one that the server knows, and after it what this
// Caddy has taken off itself, as `handle_path` does.
func prefixOf(r *http.Request, declared bool) string {
	var prefix string
	if declared {
		prefix = forwardedPrefix(r.Header.Values(prefixHeader))
	}
	return cleanPrefix(prefix + strippedOf(r))
}

// forwardedPrefix is what proxies say. Each adds what it has taken off, the outermost first.
func forwardedPrefix(values []string) string {
	var prefix strings.Builder
	for value := range strings.SplitSeq(strings.Join(values, ","), ",") {
		value = strings.TrimSuffix(strings.TrimSpace(value), "/")
		if value == "" {
			continue
		}
		clean := cleanPrefix(value)
		if clean == "" {
			return ""
		}
		prefix.WriteString(clean)
	}
	return prefix.String()
}

// strippedOf is what the routes of this Caddy have taken off the start of the path, escaped. A
// path that was changed in any other way tells nothing.
func strippedOf(r *http.Request) string {
	original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	if !ok || original.URL == nil || !strings.HasPrefix(r.URL.Path, "/") {
		return ""
	}
	if original.URL.Path == r.URL.Path {
		return ""
	}
	// Caddy cleans a path before it takes anything off, but leaves escaped dots.
	for _, path := range []string{original.URL.Path, caddyhttp.CleanPath(original.URL.Path, true)} {
		stripped, ok := strings.CutSuffix(path, r.URL.Path)
		if prefix := cleanPrefix((&url.URL{Path: stripped}).EscapedPath()); ok && prefix != "" {
			return prefix
		}
	}
	return ""
}

// cleanPrefix is a prefix in canonical form; "" for one that is no clean path, by which a URL
// could lead anywhere else.
func cleanPrefix(escaped string) string {
	if !strings.HasPrefix(escaped, "/") || strings.ContainsAny(escaped, "?#") {
		return ""
	}
	segments := strings.Split(escaped[1:], "/")
	for n, segment := range segments {
		name, err := url.PathUnescape(segment)
		if err != nil || name == "" || name == "." || name == ".." || !utf8.ValidString(name) || strings.ContainsFunc(name, ambiguous) {
			return ""
		}
		segments[n] = url.PathEscape(name)
	}
	prefix := "/" + strings.Join(segments, "/")
	if len(prefix) > maxPrefix {
		return ""
	}
	return prefix
}

// ambiguous reports characters that programs read differently in a path.
func ambiguous(r rune) bool { return r == '/' || r == '\\' || unicode.IsControl(r) }
