package comfyui

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// FileSpan is a file that an output names, and where in the output its name
// stands.
type FileSpan struct {
	Ref job.FileRef

	filename, subfolder, kind pyjson.Span
	siblings                  []sibling
}

// sibling is a string beside the file object's own members that ends in the
// file's name, such as the fullpath of video nodes.
type sibling struct {
	pyjson.Span
	dir string // what stands before the name
}

// Files finds every value of the form {filename, subfolder, type} anywhere in
// an output, a raw JSON value: the UI object of one node, or all outputs of a
// history entry. They come in the order in which they stand there.
func Files(output []byte) []FileSpan {
	w := fileWalker{Scanner: pyjson.Scanner{Data: output}}
	if !w.walk() {
		return nil
	}
	slices.SortFunc(w.files, func(a, b FileSpan) int { return cmp.Compare(a.filename.From, b.filename.From) })
	w.adopt()
	return w.files
}

// Rename returns the output with the names of its files replaced as name says;
// name is asked once for each file. Strings that name the same file are
// renamed along: any beside it that end in its name, and any elsewhere in the
// output that are its path. All other bytes stay.
func Rename(output []byte, name func(job.FileRef) job.FileRef) []byte {
	files := Files(output)
	to := make([]job.FileRef, len(files))
	for i, f := range files {
		to[i] = name(f.Ref)
	}
	return Splice(output, files, to)
}

// Splice puts new names into an output: to[i] replaces files[i], which are as
// [Files] returned them for the same output.
func Splice(output []byte, files []FileSpan, to []job.FileRef) []byte {
	var edits []pyjson.Edit
	change := func(place pyjson.Span, from, to string) {
		if from != to && place.To > 0 {
			edits = append(edits, pyjson.Edit{Span: place, With: quoted(to)})
		}
	}
	for i, f := range files {
		change(f.filename, f.Ref.Filename, to[i].Filename)
		change(f.subfolder, f.Ref.Subfolder, to[i].Subfolder)
		change(f.kind, f.Ref.Type, to[i].Type)
		for _, s := range f.siblings {
			change(s.Span, s.dir+f.Ref.Filename, s.dir+to[i].Filename)
		}
	}
	slices.SortFunc(edits, func(a, b pyjson.Edit) int { return cmp.Compare(a.From, b.From) })
	return pyjson.Splice(output, edits)
}

type fileWalker struct {
	pyjson.Scanner
	files []FileSpan
	loose []loose
}

// loose is a string that may be a path to one of the files.
type loose struct {
	pyjson.Span
	path string
}

// maxOutputDepth bounds recursion; Python itself gives up earlier.
const maxOutputDepth = 1000

func (w *fileWalker) walk() bool { return w.any(0) }

func (w *fileWalker) any(depth int) bool {
	if depth > maxOutputDepth {
		return false
	}
	switch w.Peek() {
	case '{':
		return w.objectValue(depth)
	case '[':
		return w.Array(func(int) bool { return w.any(depth + 1) })
	case '"':
		place, ok := w.Text()
		if ok {
			w.note(place, pyjson.Unquote(place.Of(w.Data)))
		}
		return ok
	}
	return w.Skip()
}

// note keeps a string that has a folder in it: a bare word is too weak a sign.
func (w *fileWalker) note(place pyjson.Span, s string) {
	if strings.ContainsAny(s, `/\`) {
		w.loose = append(w.loose, loose{place, s})
	}
}

func (w *fileWalker) objectValue(depth int) bool {
	var (
		file FileSpan
		own  []loose
	)
	ok := w.Object(func(key string) bool {
		if w.Peek() != '"' {
			return w.any(depth + 1)
		}
		place, ok := w.Text()
		if !ok {
			return false
		}
		s := pyjson.Unquote(place.Of(w.Data))
		switch key {
		case "filename":
			file.Ref.Filename, file.filename = s, place
		case "subfolder":
			file.Ref.Subfolder, file.subfolder = s, place
		case "type":
			file.Ref.Type, file.kind = s, place
		default:
			own = append(own, loose{place, s})
		}
		return true
	})
	if !ok {
		return false
	}
	if file.Ref.Filename != "" && file.subfolder.To > 0 && file.kind.To > 0 {
		for _, l := range own {
			if dir, ok := namedBy(l.path, file.Ref.Filename); ok {
				file.siblings = append(file.siblings, sibling{l.Span, dir})
			}
		}
		w.files = append(w.files, file)
		return true
	}
	for _, l := range own {
		w.note(l.Span, l.path)
	}
	return true
}

// namedBy reports whether path ends in the file's name and returns what stands
// before it.
func namedBy(path, name string) (dir string, ok bool) {
	dir, ok = strings.CutSuffix(path, name)
	return dir, ok && (dir == "" || strings.HasSuffix(dir, "/") || strings.HasSuffix(dir, `\`))
}

// adopt gives each path that stands apart to the file that it names.
func (w *fileWalker) adopt() {
	for _, l := range w.loose {
		for i := range w.files {
			f := &w.files[i]
			dir, ok := namedBy(l.path, f.Ref.Filename)
			if ok && sameFolder(dir, f.Ref.Subfolder) {
				f.siblings = append(f.siblings, sibling{l.Span, dir})
				break
			}
		}
	}
}

// sameFolder reports whether dir, with its slash at the end, is or ends in the
// subfolder.
func sameFolder(dir, subfolder string) bool {
	slashes := strings.NewReplacer(`\`, "/")
	dir, subfolder = slashes.Replace(dir), strings.Trim(slashes.Replace(subfolder), "/")+"/"
	return subfolder == "/" || dir == subfolder || strings.HasSuffix(dir, "/"+subfolder)
}

// HasFiles is a quick look whether an output may name files at all.
func HasFiles(output []byte) bool { return bytes.Contains(output, []byte(`"filename"`)) }
