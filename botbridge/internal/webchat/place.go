package webchat

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/idna"
)

// maxURL bounds the URL of a file, in bytes.
const maxURL = 4096

var errPlace = errors.New("webchat: not the address of a folder")

// place is a folder of a web server: what files_from names. URLs are compared with
// it part by part after both were parsed, never as text: as text,
// "http://chat.example@evil.example" begins with "http://chat.example".
type place struct {
	scheme, host string // host with its port, in canonical form
	segments     []string
}

// parsePlace parses files_from.
func parsePlace(text string) (*place, error) {
	p, u, err := readURL(text)
	switch {
	case err != nil:
		return nil, err
	case u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return nil, errPlace
	}
	for len(p.segments) > 0 && p.segments[len(p.segments)-1] == "" {
		p.segments = p.segments[:len(p.segments)-1]
	}
	return p, nil
}

// within returns the URL from which to fetch a file, if it is in the place. The URL
// is rebuilt from the parts that were compared, so that the HTTP client cannot
// interpret it differently.
func (p *place) within(text string) (*url.URL, bool) {
	file, u, err := readURL(text)
	if err != nil || file.scheme != p.scheme || file.host != p.host ||
		len(file.segments) < len(p.segments) || !slices.Equal(file.segments[:len(p.segments)], p.segments) {
		return nil, false
	}
	u.Scheme, u.Host, u.Fragment, u.RawFragment = file.scheme, file.host, "", ""
	return u, true
}

// readURL parses an absolute HTTP URL strictly: it refuses what servers, proxies
// and clients are known to interpret differently.
func readURL(text string) (*place, *url.URL, error) {
	if len(text) > maxURL || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return nil, nil, errPlace
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.User != nil {
		return nil, nil, errPlace // the error would quote the URL, which may contain a secret
	}
	p := &place{scheme: strings.ToLower(u.Scheme)}
	port := map[string]string{"http": "80", "https": "443"}[p.scheme]
	name := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if port == "" || name == "" {
		return nil, nil, errPlace
	}
	if strings.Contains(name, ":") {
		if strings.Contains(name, "%") {
			return nil, nil, errPlace // a zone
		}
		name = "[" + name + "]"
	} else if name, err = idna.Lookup.ToASCII(name); err != nil || strings.HasSuffix(name, ".") {
		return nil, nil, errPlace
	}
	if u.Port() != "" {
		port = u.Port()
	}
	p.host = name + ":" + port
	if path := u.EscapedPath(); path != "" {
		for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			name, ok := plainSegment(segment)
			if !ok {
				return nil, nil, errPlace
			}
			p.segments = append(p.segments, name)
		}
	}
	return p, u, nil
}

// plainSegment decodes a segment of a path. It refuses one that leads elsewhere,
// now or for a proxy that decodes once more.
func plainSegment(escaped string) (string, bool) {
	name, err := url.PathUnescape(escaped)
	if err != nil {
		return "", false
	}
	for again, n := name, 0; n < 3; n++ {
		// What follows a semicolon is a parameter to some servers.
		bare, _, _ := strings.Cut(again, ";")
		if bare == "." || bare == ".." || strings.ContainsFunc(again, func(r rune) bool { return r < ' ' || r == 0x7f || r == '/' || r == '\\' }) {
			return "", false
		}
		decoded, err := url.PathUnescape(again)
		if err != nil {
			break // a plain percent sign
		}
		again = decoded
	}
	return name, true
}
