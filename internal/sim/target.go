package sim

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"
)

// This file reads a request's target the way yarl and aiohttp do. It is written
// from their behaviour and shares no code with the hub, which must come to the
// same result. Both are checked against the same recording of a real aiohttp.

// requestTarget returns the path and the query of a request as received. It avoids
// Go's own parsing, which differs.
func requestTarget(r *http.Request) (rawPath, rawQuery string) {
	whole := r.RequestURI
	if whole == "" { // a request made by a test
		whole = r.URL.RequestURI()
	}
	if !strings.HasPrefix(whole, "/") {
		if _, rest, absolute := strings.Cut(whole, "://"); absolute {
			slash := strings.IndexAny(rest, "/?#")
			if slash < 0 {
				return "", ""
			}
			whole = rest[slash:]
		}
	}
	whole, _, _ = strings.Cut(whole, "#")
	rawPath, rawQuery, _ = strings.Cut(whole, "?")
	return rawPath, rawQuery
}

// pathSafe returns the path that aiohttp resolves routes on.
func pathSafe(r *http.Request) string {
	raw, _ := requestTarget(r)
	return unquote(raw, "/%", "")
}

// unquotePathSafe is aiohttp's decoding of a route's parameter.
func unquotePathSafe(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "%2F", "/"), "%25", "%")
}

// query returns the URL's parameters, split at & only: Go would drop a value that
// contains a semicolon, such as preview=webp;50.
func query(r *http.Request) url.Values {
	_, raw := requestTarget(r)
	values := url.Values{}
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(strings.ReplaceAll(pair, "+", " "), "=")
		values.Add(unquote(key, "", "\ufffd"), unquote(value, "", "\ufffd"))
	}
	return values
}

// unquote is yarl's _Unquoter: it decodes escapes, except those of the characters
// in ignore. Escapes that are not valid UTF-8 become invalid, or stay as they are
// if invalid is empty.
func unquote(s, ignore, invalid string) string {
	var out strings.Builder
	for s != "" {
		next := strings.IndexByte(s, '%')
		if next < 0 {
			out.WriteString(s)
			break
		}
		out.WriteString(s[:next])
		s = s[next:]
		run := escapes(s)
		if len(run) == 0 {
			out.WriteByte('%')
			s = s[1:]
			continue
		}
		for done := 0; done < len(run); {
			c, size := utf8.DecodeRune(run[done:])
			raw := s[3*done : 3*(done+size)]
			switch {
			case c == utf8.RuneError && size == 1:
				// Python replaces the whole start of a sequence at once.
				for n := min(3, len(run)-done); n > 1 && size == 1; n-- {
					if !utf8.FullRune(run[done : done+n]) {
						size = n
					}
				}
				if raw = s[3*done : 3*(done+size)]; invalid != "" {
					raw = invalid
				}
				out.WriteString(raw)
			case c < utf8.RuneSelf && strings.ContainsRune(ignore, c):
				out.WriteString(strings.ToUpper(raw))
			default:
				out.WriteRune(c)
			}
			done += size
		}
		s = s[3*len(run):]
	}
	return out.String()
}

// escapes returns the bytes of the escapes that s begins with.
func escapes(s string) (run []byte) {
	for len(s) >= 3 && s[0] == '%' {
		digits, err := url.PathUnescape(s[:3])
		if err != nil {
			break
		}
		run = append(run, digits[0])
		s = s[3:]
	}
	return run
}

// outside reports whether a path leads out of the folder of the web interface or
// is invalid for a file system. aiohttp's static route then answers a plain 404.
func outside(safe string) bool {
	name := unquotePathSafe(strings.TrimPrefix(safe, "/"))
	clean := path.Clean(name)
	return strings.HasPrefix(name, "/") || strings.Contains(name, "\x00") || clean == ".." || strings.HasPrefix(clean, "../")
}
