package aiohttp

import (
	"slices"
	"strings"
)

// Pattern is the path of a route. A segment "*" stands for any one segment,
// "**" at the end for all that follow, even none.
type Pattern struct{ segments []string }

// ParsePattern makes the Pattern of a text such as "/history/*".
func ParsePattern(text string) Pattern { return Pattern{strings.Split(text, "/")[1:]} }

// String is the text of the pattern.
func (t Pattern) String() string { return "/" + strings.Join(t.segments, "/") }

// Equal reports whether two patterns are the same.
func (t Pattern) Equal(other Pattern) bool { return slices.Equal(t.segments, other.segments) }

// Match reports whether the path is of the pattern, and returns the decoded
// values of its wildcards in order. Like a "{name}" of aiohttp, "*" takes no
// empty segment and no braces.
func (t Pattern) Match(p Path) (values []string, ok bool) {
	segments := p.segments
	for n, want := range t.segments {
		if n >= len(segments) {
			return nil, false
		}
		switch have := segments[n]; {
		case want == "**":
			rest := strings.Join(segments[n:], "/")
			return append(values, value(rest)), !strings.Contains(rest, "\n")
		case want == "*":
			if have == "" || strings.ContainsAny(have, "{}") {
				return nil, false
			}
			values = append(values, value(have))
		case want != have:
			return nil, false
		}
	}
	return values, len(segments) == len(t.segments)
}

// Resembles reports whether somebody who reads paths more loosely than aiohttp
// might take the path for one of this pattern: without regard to case, doubled
// and trailing slashes, repeated /api, matrix parameters, what follows an escaped "?", spaces,
// dots, or how often it was escaped. Such a path is no business of a custom
// node; it is an attempt to reach an instance's route behind the hub's back.
func (t Pattern) Resembles(p Loose) bool {
	_, matches := t.Match(p.path)
	return matches || slices.ContainsFunc(p.readings, t.matchesLoosely)
}

func (t Pattern) matchesLoosely(have []string) bool {
	for n, want := range t.segments {
		switch {
		case want == "**":
			return true
		case n >= len(have), want != "*" && loosely(want) != have[n]:
			return false
		}
	}
	return len(have) == len(t.segments)
}

// Loose is a path with what people make of it who read more loosely than aiohttp. It is made
// once, and held against a hundred patterns.
type Loose struct {
	path     Path
	readings [][]string
}

// Loose reads the path loosely.
func (p Path) Loose() Loose { return Loose{p, p.readings()} }

// Below reports whether the path, read loosely, is at or below one of the
// prefixes.
func (p Path) Below(prefixes ...string) bool {
	readings := p.readings()
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		want := pathOf(prefix).loose()
		return slices.ContainsFunc(readings, func(have []string) bool {
			return len(have) >= len(want) && slices.Equal(have[:len(want)], want)
		})
	})
}

// Mentions reports whether a segment of the path, read loosely, has one of the words:
// "download" is in /download-models and in /x/model.download/start, not in /downloaded.
func (p Path) Mentions(words ...string) bool {
	return slices.ContainsFunc(p.loose(), func(segment string) bool {
		return slices.ContainsFunc(strings.FieldsFunc(segment, notInWord), func(word string) bool { return slices.Contains(words, word) })
	})
}

func notInWord(c rune) bool { return c < 'a' || c > 'z' }

// readings are the path read loosely, as it is and, where it begins with /api,
// with no such prefix and with just one.
func (p Path) readings() [][]string {
	const api = "api"
	have := p.loose()
	if len(have) == 0 || have[0] != api {
		return [][]string{have}
	}
	rest := have
	for len(rest) > 0 && rest[0] == api {
		rest = rest[1:]
	}
	return [][]string{have, rest, append([]string{api}, rest...)}
}

// loose is the path as the most careless reader would see it, without empty
// segments.
func (p Path) loose() []string {
	text := p.canonical
	for range 8 { // escaped more often than that it is no path to anybody
		decoded, ok := decodeSafe(text)
		decoded = value(decoded)
		if !ok || decoded == text {
			break
		}
		text = decoded
	}
	text, _, _ = strings.Cut(text, "?")
	text, _, _ = strings.Cut(text, "#")
	var out []string
	for _, segment := range strings.FieldsFunc(text, func(r rune) bool { return r == '/' || r == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";")
		if segment = loosely(segment); segment != "" {
			out = append(out, segment)
		}
	}
	return out
}

func loosely(segment string) string {
	return strings.ToLower(strings.Trim(segment, " .\t\x00"))
}
