package aiohttp

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// ParseQuery reads a raw query as aiohttp does. Unlike net/url it splits at "&"
// only and drops nothing: a value may hold a semicolon, and a broken escape
// stands for itself.
func ParseQuery(raw string) url.Values {
	values := url.Values{}
	for pair := range pairs(raw) {
		key, v, _ := strings.Cut(pair, "=")
		key = unquotePlus(key)
		values[key] = append(values[key], unquotePlus(v))
	}
	return values
}

// WithoutKeys is the raw query without the pairs of some keys, the others as
// they came.
func WithoutKeys(raw string, keys ...string) string {
	var kept []string
next:
	for pair := range pairs(raw) {
		key, _, _ := strings.Cut(pair, "=")
		key = unquotePlus(key)
		for _, k := range keys {
			if strings.EqualFold(strings.TrimSpace(key), k) {
				continue next
			}
		}
		kept = append(kept, pair)
	}
	return strings.Join(kept, "&")
}

// pairs are the parts between ampersands. What follows a raw "#" is no part of
// the query: aiohttp takes it for a fragment.
func pairs(raw string) func(func(string) bool) {
	raw, _, _ = strings.Cut(raw, "#")
	return func(yield func(string) bool) {
		for pair := range strings.SplitSeq(raw, "&") {
			if pair != "" && !yield(pair) {
				return
			}
		}
	}
}

// MapValues replaces values of a raw query. replace is given a key and a value
// as [ParseQuery] reads them; what it does not change stays as it was written.
func MapValues(raw string, replace func(key, value string) string) string {
	var out []string
	for pair := range pairs(raw) {
		name, text, _ := strings.Cut(pair, "=")
		value := unquotePlus(text)
		if now := replace(unquotePlus(name), value); now != value {
			pair = name + "=" + url.QueryEscape(now)
		}
		out = append(out, pair)
	}
	return strings.Join(out, "&")
}

// unquotePlus is urllib's unquote_plus: plus signs are blanks, escapes that are
// none stay, and bytes that are no UTF-8 become U+FFFD.
func unquotePlus(s string) string {
	s = strings.ReplaceAll(s, "+", " ")
	if !strings.Contains(s, "%") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if high, low := unhex(s[i+1]), unhex(s[i+2]); high >= 0 && low >= 0 {
				b = append(b, byte(high<<4|low))
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	if utf8.Valid(b) {
		return string(b)
	}
	return replaceInvalid(b)
}

// replaceInvalid puts one U+FFFD for each maximal part of a broken sequence, as
// Python's decoder does; strings.ToValidUTF8 would put one for a whole run.
func replaceInvalid(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			size = brokenPart(b)
		}
		out.WriteRune(r)
		b = b[size:]
	}
	return out.String()
}

// brokenPart is the length of the longest beginning of b that is the beginning
// of a valid sequence, at least 1.
func brokenPart(b []byte) int {
	for n := min(3, len(b)); n > 1; n-- {
		// FullRune is false as long as more bytes could make it valid.
		if !utf8.FullRune(b[:n]) {
			return n
		}
	}
	return 1
}
