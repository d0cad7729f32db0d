package files

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/comfyhub/comfyhub/internal/budget"
)

const (
	// maxField bounds a field that counts and is not a file, in bytes: names of folders and files
	// are shorter. maxOther bounds any other field; none of it is kept.
	maxField = 64 << 10
	maxOther = 1 << 20
	// maxParts bounds the fields of a form.
	maxParts = 1000
	// fieldStep is how much of a field is read at a time.
	fieldStep = 4 << 10
	// formOverhead is what a form may have beyond its largest file, in bytes.
	formOverhead = 16 << 20
)

// field is one value of a form that is not a file.
type field struct {
	text string
	// binary fields have a Content-Type that is not text. Python sees bytes there, which equal no
	// string.
	binary bool
}

// formShape says which fields of a form mean anything. Of others not even the name is kept: a form
// may have a thousand.
type formShape struct {
	// file is the field that is the file, fields are the others.
	file   string
	fields []string
}

// imageForm is the form of POST /upload/image and POST /upload/mask.
func imageForm() formShape {
	return formShape{file: "image", fields: []string{"type", "subfolder", "overwrite", "original_ref"}}
}

func (s formShape) counts(name string) bool { return name == s.file || slices.Contains(s.fields, name) }

// form is the body of an upload. If a field comes twice, the first one counts.
type form struct {
	fields   map[string]field
	filename string
	file     *spool // nil if the field is not a file

	shape formShape
	ctx   context.Context //nolint:containedctx // that of the request
	held  *budget.Holder
	taken int64 // memory of the fields
}

func (f *form) Close() {
	if f.file != nil {
		f.file.Close()
	}
	f.held.Give(budget.Memory, f.taken)
	f.taken = 0
}

// tooLarge is a file beyond the limit.
type tooLarge struct{ limit, actual int64 }

func (e *tooLarge) Error() string {
	return fmt.Sprintf("Maximum request body size %d exceeded, actual body size %d", e.limit, e.actual)
}

func (e *tooLarge) Unwrap() error { return ErrTooLarge }

// errForm says that a form cannot be parsed.
var errForm = errors.New("files: malformed form")

// readForm reads an upload, spooling the file: fields may come after it. A file of more than limit
// bytes is a *tooLarge. A body that is not a form has no fields.
func readForm(w http.ResponseWriter, r *http.Request, shape formShape, dir string, limit int64) (*form, error) {
	f := &form{shape: shape, fields: map[string]field{}, ctx: r.Context(), held: budget.From(r.Context())}
	f.held.Relay() // everything that is kept is counted here
	typ, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil && typ == "" {
		return f, nil
	}
	body := http.MaxBytesReader(w, r.Body, limit+formOverhead)
	switch typ {
	case "application/x-www-form-urlencoded":
		err = f.readURLEncoded(body)
	case "multipart/form-data":
		if params["boundary"] == "" {
			return nil, errForm
		}
		err = f.readParts(budget.NewParts(body, params["boundary"]), dir, limit)
	}
	if over, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = &tooLarge{limit, over.Limit + 1}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *form) readURLEncoded(body io.Reader) error {
	data, err := f.readField(body)
	if err != nil {
		return err
	}
	values, err := url.ParseQuery(string(data))
	if err != nil {
		return fmt.Errorf("%w: %w", errForm, err)
	}
	for name, all := range values {
		if f.shape.counts(name) {
			f.fields[name] = field{text: all[0]}
		}
	}
	return nil
}

func (f *form) readParts(parts *budget.Parts, dir string, limit int64) error {
	for range maxParts {
		part, err := parts.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errForm, err)
		}
		if err := f.readPart(part, dir, limit); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: more than %d fields", errForm, maxParts)
}

func (f *form) readPart(part *multipart.Part, dir string, limit int64) error {
	name, filename, ok := parseDisposition(part.Header.Get("Content-Disposition"))
	if !ok {
		return errForm
	}
	var content io.Reader = part
	if strings.EqualFold(part.Header.Get("Content-Transfer-Encoding"), "base64") {
		content = base64.NewDecoder(base64.StdEncoding, part)
	}
	if filename != "" {
		return f.readFile(name, filename, content, dir, limit)
	}
	typ := part.Header.Get("Content-Type")
	binary := typ != "" && !strings.HasPrefix(typ, "text/")
	switch {
	case f.has(name), binary && !f.shape.counts(name):
		return skip(content, maxOther)
	case !f.shape.counts(name):
		text := &textChecker{r: content}
		if err := skip(text, maxOther); err != nil {
			return err
		}
		return text.end()
	}
	data, err := f.readField(content)
	if err != nil {
		return err
	}
	if !binary && !utf8.Valid(data) {
		return errForm
	}
	f.fields[name] = field{text: string(data), binary: binary}
	return nil
}

// readField reads a field that is not a file.
func (f *form) readField(content io.Reader) ([]byte, error) {
	var data []byte
	part := make([]byte, fieldStep)
	for {
		n, err := content.Read(part)
		if len(data)+n > maxField {
			return nil, &tooLarge{maxField, int64(len(data) + n)}
		}
		// Twice, because the buffer grows ahead, and there is a copy in the end.
		if !f.held.Take(budget.Memory, int64(2*n)) {
			return nil, budget.ErrFull
		}
		f.taken += int64(2 * n)
		data = append(data, part[:n]...)
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errForm, err)
		}
	}
}

// textChecker reads text without keeping it, and checks that it is UTF-8.
type textChecker struct {
	r     io.Reader
	left  [utf8.UTFMax]byte // the beginning of a character
	count int               // bytes of that
}

func (c *textChecker) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	for _, b := range p[:n] {
		c.left[c.count] = b
		c.count++
		if !utf8.FullRune(c.left[:c.count]) {
			continue
		}
		if r, size := utf8.DecodeRune(c.left[:c.count]); r == utf8.RuneError && size == 1 {
			return 0, errForm
		}
		c.count = 0
	}
	return n, err
}

// end returns an error if the text ends within a character.
func (c *textChecker) end() error {
	if c.count > 0 {
		return errForm
	}
	return nil
}

// skip reads past a field that nobody needs.
func skip(content io.Reader, limit int64) error {
	n, err := io.Copy(io.Discard, io.LimitReader(content, limit+1))
	if err != nil {
		return fmt.Errorf("%w: %w", errForm, err)
	}
	if n > limit {
		return &tooLarge{limit, n}
	}
	return nil
}

// readFile spools the file that counts and reads past any other.
func (f *form) readFile(name, filename string, content io.Reader, dir string, limit int64) error {
	if name != f.shape.file || f.has(name) {
		err := skip(content, limit)
		if f.shape.counts(name) && !f.has(name) {
			// It has the name, but is neither text nor the file.
			f.fields[name] = field{binary: true}
		}
		return err
	}
	sp, err := newSpool(f.ctx, dir, content, limit)
	switch {
	case errors.Is(err, ErrTooLarge):
		return &tooLarge{limit, limit + 1}
	case errors.Is(err, ErrStorage):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errForm, err)
	}
	f.file, f.filename = sp, filename
	return nil
}

func (f *form) has(name string) bool {
	_, ok := f.fields[name]
	return ok || (name == f.shape.file && f.file != nil)
}
