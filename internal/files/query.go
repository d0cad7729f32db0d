package files

import (
	"net/url"
	"strings"
)

// query holds the first value of each parameter.
type query map[string]string

// parseQuery reads a query as ComfyUI does: only "&" separates, so that
// preview=webp;50 is one value, and broken percent signs stand for themselves.
// net/url drops parameters with a semicolon.
func parseQuery(raw string) query {
	q := query{}
	for pair := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, value = unescape(name), unescape(value)
		if _, known := q[name]; !known && pair != "" {
			q[name] = value
		}
	}
	return q
}

func unescape(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		return plain
	}
	// One broken escape must not spoil the others.
	var b strings.Builder
	for len(s) > 0 {
		n := 1
		if s[0] == '%' && len(s) >= 3 {
			n = 3
		}
		if plain, err := url.QueryUnescape(s[:n]); err == nil {
			b.WriteString(plain)
		} else {
			b.WriteByte(s[0])
			n = 1
		}
		s = s[n:]
	}
	return b.String()
}
