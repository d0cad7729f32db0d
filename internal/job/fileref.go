package job

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

// FileRef names a file as ComfyUI does.
type FileRef struct {
	// Type is TypeInput, TypeOutput or TypeTemp.
	Type string
	// Subfolder is relative to the folder of the type, "" for that folder.
	Subfolder string
	Filename  string
}

// ParseFileRef reads the value of a node's input: folders and a name, and at the
// end perhaps the type in brackets, as in "sub/a.png [output]". Without brackets
// the type is typ. Backslashes separate folders, too: to a Windows instance they
// do.
func ParseFileRef(value, typ string) FileRef {
	name, annotated := SplitAnnotation(value)
	if annotated != "" {
		typ = annotated
	}
	dir, file := path.Split(strings.ReplaceAll(name, `\`, "/"))
	if dir != "" && dir != "/" { // an absolute path must not pass for a plain name
		dir = dir[:len(dir)-1]
	}
	return FileRef{Type: typ, Subfolder: dir, Filename: file}
}

// SplitAnnotation cuts a type in brackets off the end of a node's input. ComfyUI
// cuts a fixed number of characters: it takes for granted that a blank stands
// before the bracket and drops whatever is there.
func SplitAnnotation(value string) (name, typ string) {
	for _, typ := range [...]string{TypeOutput, TypeInput, TypeTemp} {
		if name, ok := strings.CutSuffix(value, "["+typ+"]"); ok {
			_, size := utf8.DecodeLastRuneInString(name)
			return name[:len(name)-size], typ
		}
	}
	return value, ""
}

// Value writes the file as the value of a node's input; annotated adds the type
// in brackets.
func (r FileRef) Value(annotated bool) string {
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
