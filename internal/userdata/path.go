package userdata

import (
	"errors"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of disks and object stores.
const (
	maxPath    = 700 // bytes of a whole path
	maxSegment = 200 // bytes of a name
)

// notes end the names of the files in which folder storage would keep what object stores note
// about a blob. It refuses them for anything else.
const notes = ".attrs"

var (
	// ErrOutside means that a path leaves the user's folder.
	ErrOutside = errors.New("userdata: path leaves the user's folder")
	// ErrName means that no file can have this name.
	ErrName = errors.New("userdata: no valid file name")
)

// Path is a place in a user's folder: clean, relative, with slashes; "" is the
// folder itself. It never leaves the folder.
type Path string

// ParsePath parses a path as sent by clients. Like ComfyUI it undoes percent
// escapes once more than HTTP did. Errors: ErrOutside, ErrName.
func ParsePath(raw string) (Path, error) {
	p := unquote(raw)
	if strings.HasPrefix(p, "/") {
		return "", ErrOutside
	}
	// When a path is evaluated from the left it must not rise above the top, even
	// if it comes back.
	p = path.Clean(p)
	if p == ".." || strings.HasPrefix(p, "../") {
		return "", ErrOutside
	}
	if p == "." {
		return "", nil
	}
	if len(p) > maxPath || !utf8.ValidString(p) || strings.HasSuffix(p, notes) {
		return "", ErrName
	}
	for segment := range strings.SplitSeq(p, "/") {
		if !validName(segment) {
			return "", ErrName
		}
	}
	return Path(p), nil
}

// validName refuses names that some storage cannot tell from others: control
// characters, backslashes (separators elsewhere), and names that look like the
// storage's own escapes and temporary files.
func validName(name string) bool {
	if name == "" || len(name) > maxSegment || strings.Contains(name, "__0x") || isTemporary(name) {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\\' })
}

// isTemporary reports names of the form NAME.HEX.tmp, which folder storage uses for
// incomplete files.
func isTemporary(name string) bool {
	rest, ok := strings.CutSuffix(name, ".tmp")
	if !ok {
		return false
	}
	digits := rest[strings.LastIndexByte(rest, '.')+1:]
	_, err := strconv.ParseUint(digits, 16, 64)
	return err == nil && len(digits) >= 12 && len(digits) < len(rest)
}

// Name returns the last part of a path.
func (p Path) Name() string { return path.Base(string(p)) }

// parents returns the folders that contain a path, the outermost first, without the
// user's own.
func (p Path) parents() []Path {
	var out []Path
	for i, c := range p {
		if c == '/' {
			out = append(out, p[:i])
		}
	}
	return out
}

// under returns a path relative to a folder that contains it.
func (p Path) under(dir Path) Path {
	if dir == "" {
		return p
	}
	return p[len(dir)+1:]
}

// unquote is Python's urllib.parse.unquote: invalid escapes stay as they are.
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
