package files

import (
	"path"
	"strings"
	"unicode/utf8"
)

// The types of files, each a folder of its own in ComfyUI.
const (
	TypeInput  = "input"
	TypeOutput = "output"
	TypeTemp   = "temp"
)

// Ref names a file as ComfyUI does.
type Ref struct {
	// Type is "input", "output" or "temp".
	Type string
	// Subfolder is relative to the folder of the type, "" for that folder.
	Subfolder string
	Filename  string
}

// knownType reports whether typ is a folder that ComfyUI has.
func knownType(typ string) bool {
	return typ == TypeInput || typ == TypeOutput || typ == TypeTemp
}

// ParseValue reads the value of a node's input: folders and a name, and at the
// end perhaps the type in brackets, as in "sub/a.png [output]". Without brackets
// the type is typ.
func ParseValue(value, typ string) Ref {
	name, annotated := splitAnnotation(value)
	if annotated != "" {
		typ = annotated
	}
	dir, file := path.Split(slashes(name))
	if dir != "" && dir != "/" { // an absolute path must not pass for a plain name
		dir = dir[:len(dir)-1]
	}
	return Ref{Type: typ, Subfolder: dir, Filename: file}
}

// Value writes the file as the value of a node's input; annotated adds the type
// in brackets.
func (r Ref) Value(annotated bool) string {
	value := r.Filename
	switch r.Subfolder {
	case "":
	case "/":
		value = "/" + value
	default:
		value = r.Subfolder + "/" + value
	}
	if annotated {
		value += " [" + r.Type + "]"
	}
	return value
}

// splitAnnotation cuts a type in brackets off the end. ComfyUI cuts a fixed
// number of characters: it takes for granted that a blank stands before the
// bracket and drops whatever is there.
func splitAnnotation(value string) (name, typ string) {
	for _, typ := range [...]string{TypeOutput, TypeInput, TypeTemp} {
		if name, ok := strings.CutSuffix(value, "["+typ+"]"); ok {
			_, size := utf8.DecodeLastRuneInString(name)
			return name[:len(name)-size], typ
		}
	}
	return value, ""
}

// place is where a file lies in a tenant's name space: a Ref in its only
// spelling.
type place struct {
	typ  string
	dir  string // clean, without slashes around it; "" is the folder of the type
	name string // one path element
}

func (p place) ref() Ref { return Ref{Type: p.typ, Subfolder: p.dir, Filename: p.name} }

// place finds where the file lies; ok is false for names that lead out of the
// folder or cannot be files.
func (r Ref) place() (p place, ok bool) {
	dir, ok := cleanFolder(r.Subfolder)
	if !ok || !knownType(r.Type) {
		return place{}, false
	}
	return placeIn(r.Type, dir, r.Filename)
}

// placeIn finds a file by a name that may hold folders, relative to dir.
func placeIn(typ, dir, filename string) (p place, ok bool) {
	filename = slashes(filename)
	if strings.HasPrefix(filename, "/") || strings.HasSuffix(filename, "/") {
		return place{}, false
	}
	full, ok := cleanFolder(path.Join(dir, filename))
	if !ok || full == "" || filename == "" || !storable(full) {
		return place{}, false
	}
	dir, name := path.Split(full)
	if filename[strings.LastIndexByte(filename, '/')+1:] != name {
		return place{}, false // "." or ".." at the end: a folder
	}
	return place{typ: typ, dir: strings.TrimSuffix(dir, "/"), name: name}, true
}

// cleanFolder gives a subfolder its only spelling; ok is false when it leads
// out of the folder that it is relative to.
func cleanFolder(subfolder string) (dir string, ok bool) {
	subfolder = slashes(subfolder)
	if strings.HasPrefix(subfolder, "/") {
		return "", false
	}
	dir = path.Clean(subfolder)
	switch {
	case dir == ".":
		return "", true
	case dir == "..", strings.HasPrefix(dir, "../"):
		return "", false
	}
	return dir, true
}

// slashes turns Windows separators: names go to instances of either kind, so a
// backslash must never pass as a part of a name.
func slashes(name string) string { return strings.ReplaceAll(name, `\`, "/") }

// maxElement is the length in bytes that file systems give a path element.
const maxElement = 255

// maxFullPath is the length in bytes that systems give a whole path.
const maxFullPath = 4096

// storable reports whether a clean path could be a file on an instance's disk.
func storable(full string) bool {
	if len(full) > maxFullPath || strings.ContainsRune(full, 0) {
		return false
	}
	for element := range strings.SplitSeq(full, "/") {
		if len(element) > maxElement {
			return false
		}
	}
	return true
}

// splitExt cuts a name before its extension as Python's os.path.splitext does:
// leading dots of the last path element begin no extension.
func splitExt(name string) (stem, ext string) {
	base := strings.LastIndexByte(name, '/') + 1
	dot := strings.LastIndexByte(name, '.')
	if dot < base || strings.Trim(name[base:dot], ".") == "" {
		return name, ""
	}
	return name[:dot], name[dot:]
}
