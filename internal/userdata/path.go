package userdata

import (
	"errors"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of what disks and object stores take.
const (
	maxPath    = 700 // bytes of a whole path
	maxSegment = 200 // bytes of a name
)

var (
	// ErrOutside says that a path leaves the user's folder.
	ErrOutside = errors.New("userdata: path leaves the user's folder")
	// ErrName says that no file can have this name.
	ErrName = errors.New("userdata: no valid file name")
)

// Path is a place in a user's folder: clean, relative, with slashes; "" is the
// folder itself. It never leaves the folder.
type Path string

// ParsePath reads a path as clients send it. Like ComfyUI it undoes percent
// escapes once more than HTTP did. Errors: ErrOutside, ErrName.
func ParsePath(raw string) (Path, error) {
	p := unquote(raw)
	if strings.HasPrefix(p, "/") {
		return "", ErrOutside
	}
	// What is cleaned from the left may not pass the top, whatever it comes
	// back to.
	p = path.Clean(p)
	if p == ".." || strings.HasPrefix(p, "../") {
		return "", ErrOutside
	}
	if p == "." {
		return "", nil
	}
	if len(p) > maxPath || !utf8.ValidString(p) {
		return "", ErrName
	}
	for segment := range strings.SplitSeq(p, "/") {
		if !validName(segment) {
			return "", ErrName
		}
	}
	return Path(p), nil
}

// validName refuses names that some storage cannot keep apart from others:
// control characters, backslashes (separators elsewhere), and what looks like
// the storage's own escapes and temporary files.
func validName(name string) bool {
	if name == "" || len(name) > maxSegment || strings.Contains(name, "__0x") || isTemporary(name) {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\\' })
}

// isTemporary reports names of the form NAME.HEX.tmp, under which a folder
// storage writes files that are not complete yet.
func isTemporary(name string) bool {
	rest, ok := strings.CutSuffix(name, ".tmp")
	if !ok {
		return false
	}
	digits := rest[strings.LastIndexByte(rest, '.')+1:]
	_, err := strconv.ParseUint(digits, 16, 64)
	return err == nil && len(digits) >= 12 && len(digits) < len(rest)
}

// Name is the last part of a path.
func (p Path) Name() string { return path.Base(string(p)) }

// parents are the folders that a path lies in, the outermost first, without
// the user's own.
func (p Path) parents() []Path {
	var out []Path
	for i, c := range p {
		if c == '/' {
			out = append(out, p[:i])
		}
	}
	return out
}

// under is a path relative to a folder that it lies in.
func (p Path) under(dir Path) Path {
	if dir == "" {
		return p
	}
	return p[len(dir)+1:]
}

// unquote is Python's urllib.parse.unquote: escapes that are none stay as
// they are.
func unquote(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}
