package aiohttp

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	// ErrRefused is the error for a path that must not be answered or passed on.
	ErrRefused = errors.New("refused path")
	// ErrEncoding is an ErrRefused for a path that is not UTF-8, and nothing worse.
	ErrEncoding = fmt.Errorf("%w: invalid UTF-8", ErrRefused)
)

// Path is the path of a request in the canonical form on which aiohttp
// resolves routes: every escape is decoded except %2F and %25. The zero value
// is no path. Only [ReadPath] and [MustPath] make one, so whoever holds a Path
// holds what an instance will read.
type Path struct {
	canonical string
	segments  []string // split once: a request is held against a hundred patterns
}

// ReadPath reads the path of a URL. It is strict where aiohttp is lenient: its
// error wraps [ErrRefused] for a path that does not begin with a slash, holds a
// raw "#", a broken escape, invalid UTF-8, a control character, a backslash, or
// a segment "." or "..". No client of ComfyUI sends these, and servers, proxies
// and file systems disagree about what they mean.
func ReadPath(u *url.URL) (Path, error) {
	raw := rawPath(u)
	if !strings.HasPrefix(raw, "/") {
		return Path{}, fmt.Errorf("%w: no slash at its start", ErrRefused)
	}
	if strings.Contains(raw, "#") {
		return Path{}, fmt.Errorf("%w: a fragment", ErrRefused)
	}
	canonical, ok := decodeSafe(raw)
	if !ok {
		return Path{}, fmt.Errorf("%w: a broken escape", ErrRefused)
	}
	p := pathOf(canonical)
	switch text := value(canonical); {
	case strings.ContainsFunc(text, func(r rune) bool { return r == '\\' || unicode.IsControl(r) }):
		return Path{}, fmt.Errorf("%w: a backslash or a control character", ErrRefused)
	case slices.ContainsFunc(p.segments, isDots):
		return Path{}, fmt.Errorf("%w: a dot segment", ErrRefused)
	case !utf8.ValidString(text):
		return Path{}, ErrEncoding
	}
	return p, nil
}

// MustPath is the Path of a constant. It panics if there is none.
func MustPath(path string) Path {
	p, err := ReadPath(&url.URL{Path: path})
	if err != nil {
		panic(err)
	}
	return p
}

// rawPath is the path as it came. EscapedPath would not do: it encodes again,
// and turns %2F into a slash, where the raw path has characters that net/url
// itself would escape.
func rawPath(u *url.URL) string {
	if u.RawPath != "" {
		if path, err := url.PathUnescape(u.RawPath); err == nil && path == u.Path {
			return u.RawPath
		}
	}
	return (&url.URL{Path: u.Path}).EscapedPath()
}

// decodeSafe decodes every escape except %2F and %25.
func decodeSafe(raw string) (string, bool) {
	if !strings.Contains(raw, "%") {
		return raw, true
	}
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] != '%' {
			b.WriteByte(raw[i])
			continue
		}
		if i+2 >= len(raw) {
			return "", false
		}
		high, low := unhex(raw[i+1]), unhex(raw[i+2])
		if high < 0 || low < 0 {
			return "", false
		}
		switch c := byte(high<<4 | low); c {
		case '/':
			b.WriteString("%2F")
		case '%':
			b.WriteString("%25")
		default:
			b.WriteByte(c)
		}
		i += 2
	}
	return b.String(), true
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// value decodes the two escapes that are left in a canonical path.
func value(canonical string) string {
	return strings.ReplaceAll(strings.ReplaceAll(canonical, "%2F", "/"), "%25", "%")
}

// isDots reports whether a segment leads elsewhere.
func isDots(segment string) bool { return segment == "." || segment == ".." }

// String is the canonical form.
func (p Path) String() string { return p.canonical }

// Decoded is the path with every escape decoded, as a file server reads it.
func (p Path) Decoded() string { return value(p.canonical) }

func pathOf(canonical string) Path { return Path{canonical, strings.Split(canonical, "/")[1:]} }

// Climbs reports whether the path has a segment "." or ".." for those who take
// %2F for a slash, as some custom nodes do.
func (p Path) Climbs() bool {
	return slices.ContainsFunc(strings.Split(p.Decoded(), "/"), isDots)
}

// Bare is the path without the prefix /api, under which every route of ComfyUI
// exists a second time.
func (p Path) Bare() Path {
	if rest, ok := strings.CutPrefix(p.canonical, "/api/"); ok {
		return pathOf("/" + rest)
	}
	return p
}

// Escaped is the form to send: read again, by aiohttp or by [ReadPath], it is
// the same Path.
func (p Path) Escaped() string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(p.canonical) {
		// A percent sign is the beginning of %2F or %25.
		if c := p.canonical[i]; c == '%' || mayStand(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// mayStand reports whether a character may stand in a path as it is: "/" and
// what RFC 3986 calls pchar.
func mayStand(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("/-._~!$&'()*+,;=:@", c) >= 0
}

// Set gives a URL this path.
func (p Path) Set(u *url.URL) {
	u.Opaque, u.Path, u.RawPath = "", p.Decoded(), p.Escaped()
}
