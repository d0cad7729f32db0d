package sim

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// uploadForm is the content of an upload.
type uploadForm struct {
	fields   map[string]string
	file     []byte
	filename string
	hasFile  bool // a part "image" with a filename
	hasText  bool // a part "image" without one
}

var errTooLarge = errors.New("body too large")

// readForm reads a multipart body. A body of another kind has no fields.
func (f *fileRoutes) readForm(r *http.Request) (uploadForm, int64, error) {
	form := uploadForm{fields: map[string]string{}}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(kind, "multipart/") {
		if kind == "application/x-www-form-urlencoded" {
			form.hasText = r.ParseForm() == nil && r.PostForm.Has("image")
		}
		return form, 0, nil
	}
	limit := int64(f.bodyLimit)
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return form, 0, err
	}
	if int64(len(body)) > limit {
		drain(r.Body)
		return form, int64(len(body)), errTooLarge
	}
	reader := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return form, 0, nil
		}
		if err != nil {
			return form, 0, err
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return form, 0, err
		}
		name, filename, isFile := partNames(part.Header.Get("Content-Disposition"))
		switch {
		case name != "image":
			form.fields[name] = string(data)
		case isFile:
			form.file, form.filename, form.hasFile = data, filename, true
		default:
			form.hasText = true
		}
	}
}

// partNames returns the name and the filename of a part. mime/multipart would cut
// the folder off a filename, but the real server keeps it.
func partNames(disposition string) (name, filename string, isFile bool) {
	_, params, err := mime.ParseMediaType(disposition)
	if err != nil {
		return "", "", false
	}
	filename, isFile = params["filename"]
	return params["name"], filename, isFile
}

func (f *fileRoutes) postUploadImage(w http.ResponseWriter, r *http.Request) {
	f.upload(w, r, func(full string, form uploadForm) error { return os.WriteFile(full, form.file, 0o644) })
}

// postUploadMask stores the original with the alpha channel of the upload. If there
// is no original, nothing is stored, and the answer is the same.
func (f *fileRoutes) postUploadMask(w http.ResponseWriter, r *http.Request) {
	f.upload(w, r, func(full string, form uploadForm) error {
		v, err := pyjson.Parse([]byte(form.fields["original_ref"]))
		ref, ok := v.(*pyjson.Object)
		if err != nil || !ok {
			return errors.New("original_ref is no object")
		}
		name, kind := annotated(ref.String("filename"))
		if !ref.Has("filename") || name == "" || name[0] == '/' || strings.Contains(name, "..") {
			return nil // nothing is stored, and nobody is told
		}
		if kind == "" {
			kind = "output"
			if t := ref.String("type"); t != "" {
				kind = t
			}
		}
		root := f.files.root(kind)
		dir, inside := within(root, ref.String("subfolder"))
		if root == "" || !inside {
			return nil
		}
		original := filepath.Join(dir, filepath.Base(name))
		data, err := os.ReadFile(original)
		if err != nil {
			return nil // the real server answers 200 anyway
		}
		img, ok := readImageFile(original)
		alpha, ok2 := decodeImage(form.file)
		if !ok || !ok2 {
			return errors.New("no image")
		}
		if img.Bounds().Size() != alpha.Bounds().Size() {
			return errors.New("images do not match")
		}
		return os.WriteFile(full, encodePNG(withAlpha(img, alpha), pngTexts(data)), 0o644)
	})
}

// upload is the common part of both routes. It decides where the file goes and
// what its name is.
func (f *fileRoutes) upload(w http.ResponseWriter, r *http.Request, store func(full string, form uploadForm) error) {
	form, size, err := f.readForm(r)
	switch {
	case errors.Is(err, errTooLarge):
		answerTooLarge(w, int64(f.bodyLimit), size)
		return
	case err != nil, form.hasText, form.hasFile && form.filename == "":
		answerInternalError(w, r)
		return
	case !form.hasFile:
		answerEmpty(w, http.StatusBadRequest)
		return
	}
	kind, given := form.fields["type"]
	if !given {
		kind = "input"
	}
	root := f.files.root(kind)
	if root == "" {
		answerInternalError(w, r)
		return
	}
	subfolder := form.fields["subfolder"]
	dir, _ := within(root, subfolder)
	// The HTTP library drops one leading slash of a filename.
	filename := strings.TrimPrefix(form.filename, "/")
	full := filepath.Join(dir, filename)
	if _, inside := within(root, dir); !inside || !strings.HasPrefix(full, root+string(filepath.Separator)) {
		answerEmpty(w, http.StatusBadRequest)
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		answerInternalError(w, r)
		return
	}
	overwrite := form.fields["overwrite"]
	name, same := filename, false
	if overwrite != "true" && overwrite != "1" {
		name, same = freeName(dir, filename, form.file)
	}
	if !same {
		if store(filepath.Join(dir, name), form) != nil {
			answerInternalError(w, r)
			return
		}
	}
	answer := dict("name", name, "subfolder", subfolder, "type", kind)
	if f.assets {
		answer.Set("asset", uploadedAsset(name, subfolder, kind, form.file))
	}
	answerJSON(w, http.StatusOK, answer)
}

// freeName returns the first of "a.png", "a (1).png", … that does not exist or has
// the same content. A file with the same content need not be written.
func freeName(dir, filename string, content []byte) (name string, same bool) {
	ext := filepath.Ext(filename)
	stem := strings.TrimSuffix(filename, ext)
	if stem == "" || strings.HasSuffix(stem, "/") {
		stem, ext = filename, "" // ".hidden" has no extension in Python
	}
	name = filename
	for i := 1; ; i++ {
		have, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return name, false
		}
		if sha256.Sum256(have) == sha256.Sum256(content) {
			return name, true
		}
		name = fmt.Sprintf("%s (%d)%s", stem, i, ext)
	}
}
