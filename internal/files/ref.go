package files

import (
	"path"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
)

// knownType reports whether typ is a folder that ComfyUI has.
func knownType(typ string) bool {
	return typ == job.TypeInput || typ == job.TypeOutput || typ == job.TypeTemp
}

// place is where a file is in a tenant's name space: a Ref in its one canonical spelling.
type place struct {
	typ  string
	dir  string // clean, without slashes around it; "" is the folder of the type
	name string // one path element
}

func (p place) ref() job.FileRef { return job.FileRef{Type: p.typ, Subfolder: p.dir, Filename: p.name} }

// placeOf finds where a file is; ok is false for names that lead out of the folder or cannot be
// files.
func placeOf(r job.FileRef) (p place, ok bool) {
	dir, ok := cleanFolder(r.Subfolder)
	if !ok || !knownType(r.Type) {
		return place{}, false
	}
	return placeIn(r.Type, dir, r.Filename)
}

// placeIn finds a file by a name that may contain folders, relative to dir.
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

// cleanFolder gives a subfolder its canonical spelling; ok is false if it leads out of the folder
// that it is relative to.
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

// slashes converts Windows separators: names go to instances of either kind, so a backslash must
// never pass as part of a name.
func slashes(name string) string { return strings.ReplaceAll(name, `\`, "/") }

// maxElement is the most bytes that file systems allow in a path element.
const maxElement = 255

// maxFullPath is the most bytes that systems allow in a whole path.
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

// splitExt splits a name before its extension as Python's os.path.splitext does: leading dots of
// the last path element do not begin an extension.
func splitExt(name string) (stem, ext string) {
	base := strings.LastIndexByte(name, '/') + 1
	dot := strings.LastIndexByte(name, '.')
	if dot < base || strings.Trim(name[base:dot], ".") == "" {
		return name, ""
	}
	return name[:dot], name[dot:]
}
