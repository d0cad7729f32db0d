package facade

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// maxUpload bounds a file, in bytes.
	maxUpload = 1 << 30
	// inputsKept is how long an input is kept that nobody has named again: a hub
	// brings it again where it is missing.
	inputsKept = 24 * time.Hour
)

// files are the server's inputs and outputs, in a folder of its own. Nothing that a request
// names is outside of it.
type files struct {
	dir  string
	root *os.Root

	mu sync.Mutex
	// of are the outputs of each prompt.
	of     map[string][]string
	number int
	swept  time.Time
}

func newFiles(dir string) (*files, error) {
	if err := os.RemoveAll(dir); err != nil { // of an earlier process
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	for _, kind := range []string{"input", "output", "temp"} {
		if err := root.Mkdir(kind, 0o700); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	return &files{dir: dir, root: root, of: map[string][]string{}}, nil
}

// close removes all files.
func (f *files) close() {
	_ = f.root.Close()
	_ = os.RemoveAll(f.dir)
}

// place returns the path of a file below the folder; false for a name that is none.
func place(kind, subfolder, name string) (string, bool) {
	if kind == "" {
		kind = "output"
	}
	full := path.Join(kind, subfolder, name)
	ok := (kind == "input" || kind == "output" || kind == "temp") && name != "" && path.Base(name) == name &&
		strings.HasPrefix(full, kind+"/") && fs.ValidPath(full) && !strings.Contains(full, "\\")
	return full, ok
}

// kindOf divides the name of a file in a prompt: "folder/name", perhaps with " [output]".
func kindOf(name string) (kind, file string) {
	for _, kind := range []string{"input", "output", "temp"} {
		if rest, ok := strings.CutSuffix(name, " ["+kind+"]"); ok {
			return kind, rest
		}
	}
	return "input", name
}

// openInput opens a file by its name in a prompt.
func (f *files) openInput(name string) (io.ReadCloser, error) {
	kind, file := kindOf(name)
	full, ok := place(kind, path.Dir(file), path.Base(file))
	if !ok {
		return nil, fmt.Errorf("%q: %w", name, fs.ErrNotExist)
	}
	return f.root.Open(full)
}

// write stores a file, whole or not at all.
func (f *files) write(full string, content io.Reader) error {
	if dir := path.Dir(full); dir != "." {
		if err := f.root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.number++
	draft := fmt.Sprintf("draft-%d", f.number)
	f.mu.Unlock()
	out, err := f.root.Create(draft)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(content, maxUpload+1))
	if err == nil && n > maxUpload {
		err = errors.New("the file is too large")
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = f.root.Rename(draft, full)
	}
	if err != nil {
		_ = f.root.Remove(draft)
	}
	return err
}

func (f *files) has(full string) bool {
	info, err := f.root.Stat(full)
	return err == nil && info.Mode().IsRegular()
}

// save stores an output of a prompt and returns its name.
func (f *files) save(prompt, name, extension string, content io.Reader) (string, error) {
	f.mu.Lock()
	f.number++
	file := fmt.Sprintf("%s_%s_%05d_%s", name, shortened(prompt), f.number, extension)
	f.mu.Unlock()
	full, ok := place("output", "", file)
	if !ok {
		return "", fmt.Errorf("%q is no name of a file", file)
	}
	if err := f.write(full, content); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[prompt] = append(f.of[prompt], full)
	return file, nil
}

// size is how large the outputs of a prompt are together, in bytes.
func (f *files) size(prompt string) (all int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, full := range f.of[prompt] {
		if info, err := f.root.Stat(full); err == nil {
			all += info.Size()
		}
	}
	return all
}

// forget removes the outputs of a prompt.
func (f *files) forget(prompt string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, full := range f.of[prompt] {
		_ = f.root.Remove(full)
	}
	delete(f.of, prompt)
}

// sweep removes inputs that were stored long ago.
func (f *files) sweep() {
	f.mu.Lock()
	now := time.Now()
	if now.Sub(f.swept) < time.Minute {
		f.mu.Unlock()
		return
	}
	f.swept = now
	f.mu.Unlock()
	_ = fs.WalkDir(f.root.FS(), "input", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // the next sweep looks again
		}
		if info, err := entry.Info(); err == nil && now.Sub(info.ModTime()) > inputsKept {
			_ = f.root.Remove(name)
		}
		return nil
	})
}

// save stores an output of a run and adds it to what the run shows.
func (s *Server) save(r *Run, node, name, extension string, content io.Reader) error {
	if r.Class(node) == "" {
		return fmt.Errorf("the prompt has no node %q", node)
	}
	file, err := s.files.save(r.ID, name, extension, content)
	if err != nil {
		return err
	}
	key := "files"
	switch kind, _, _ := strings.Cut(mime.TypeByExtension(extension), "/"); kind {
	case "image":
		key = "images"
	case "video":
		key = "video"
	case "audio":
		key = "audio"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	output := r.outputs.Object(node)
	if output == nil {
		output = &pyjson.Object{}
		r.outputs.Set(node, output)
	}
	output.Set(key, append(output.Array(key), dict("filename", pyjson.String(file), "subfolder", pyjson.String(""), "type", pyjson.String("output"))))
	return nil
}

func (s *Server) getView(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	full, ok := place(q.Get("type"), q.Get("subfolder"), q.Get("filename"))
	if !ok {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	file, err := s.files.root.Open(full)
	if err != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()))
	http.ServeContent(w, r, info.Name(), info.ModTime(), file)
}

func (s *Server) postUpload(w http.ResponseWriter, r *http.Request) {
	s.files.sweep()
	form, err := r.MultipartReader()
	if err != nil {
		http.Error(w, "no form", http.StatusBadRequest)
		return
	}
	// The hub sends the fields before the file.
	fields := map[string]string{}
	for {
		part, err := form.NextPart()
		if err != nil {
			http.Error(w, "no file in the form", http.StatusBadRequest)
			return
		}
		if part.FileName() == "" {
			value, err := io.ReadAll(io.LimitReader(part, 4096))
			if err != nil {
				http.Error(w, "the form ends early", http.StatusBadRequest)
				return
			}
			fields[part.FormName()] = string(value)
			continue
		}
		s.storeUpload(w, fields, part)
		return
	}
}

func (s *Server) storeUpload(w http.ResponseWriter, fields map[string]string, part *multipart.Part) {
	kind := fields["type"]
	if kind == "" {
		kind = "input"
	}
	name := part.FileName()
	full, ok := place(kind, fields["subfolder"], name)
	if !ok {
		http.Error(w, "no name of a file", http.StatusBadRequest)
		return
	}
	for n := 1; fields["overwrite"] != "true" && s.files.has(full); n++ {
		extension := path.Ext(part.FileName())
		name = fmt.Sprintf("%s (%d)%s", strings.TrimSuffix(part.FileName(), extension), n, extension)
		full, _ = place(kind, fields["subfolder"], name)
	}
	if err := s.files.write(full, part); err != nil {
		http.Error(w, "the file cannot be stored", http.StatusInternalServerError)
		return
	}
	answer(w, http.StatusOK, dict("name", pyjson.String(name), "subfolder", pyjson.String(fields["subfolder"]), "type", pyjson.String(kind)))
}
