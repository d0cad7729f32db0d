package fakebot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // pictures are looked at
	_ "image/png"  // pictures are looked at
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
)

// call is one call of a method: its parameters as text, and its files.
type call struct {
	method string
	params map[string]string
	files  map[string]File
	small  map[string][]byte // the bytes of small files, so that people can answer to them
}

// File describes an uploaded file, without its bytes.
type File struct {
	Name          string
	Size          int64
	Hash          string
	Width, Height int // pixels, or 0 if it is not a picture; of a video as the bot says
	Seconds       int // that a video plays, as the bot says
}

const (
	maxMemory = 64 << 20
	// keepSize is the largest file whose bytes are kept.
	keepSize = 1 << 20
)

// parseCall reads a call as a multipart form, JSON or a URL-encoded form. The Bot
// API accepts all three.
func parseCall(method string, r *http.Request) (*call, error) {
	c := &call{method: method, params: map[string]string{}, files: map[string]File{}, small: map[string][]byte{}}
	kind, options, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "multipart/form-data":
		return c, c.readForm(multipart.NewReader(r.Body, options["boundary"]))
	case "application/json":
		var params map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&params); err != nil {
			return nil, err
		}
		for name, raw := range params {
			text := string(raw)
			var s string
			if json.Unmarshal(raw, &s) == nil {
				text = s
			}
			c.params[name] = text
		}
		return c, nil
	}
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	for name := range r.Form {
		c.params[name] = r.Form.Get(name)
	}
	return c, nil
}

func (c *call) readForm(form *multipart.Reader) error {
	for parts := 0; ; parts++ {
		part, err := form.NextPart()
		// A call without parameters has an empty body. Any other body that ends too soon
		// was cut.
		if err == io.EOF || parts == 0 && errors.Is(err, io.EOF) { //nolint:errorlint // only the bare EOF is an orderly end
			return nil
		}
		if err != nil {
			return err
		}
		data, err := io.ReadAll(io.LimitReader(part, maxMemory))
		if err != nil {
			return err
		}
		if part.FileName() == "" {
			c.params[part.FormName()] = string(data)
			continue
		}
		file := fileOf(part.FileName(), data)
		c.files[part.FormName()] = file
		if file.Size <= keepSize {
			c.small[file.Hash] = data
		}
	}
}

func fileOf(name string, data []byte) File {
	sum := sha256.Sum256(data)
	file := File{Name: name, Size: int64(len(data)), Hash: hex.EncodeToString(sum[:8])}
	if config, _, err := image.DecodeConfig(bytes.NewReader(data)); err == nil {
		file.Width, file.Height = config.Width, config.Height
	}
	return file
}

func (c *call) int(name string) int {
	n, _ := strconv.Atoi(c.params[name])
	return n
}

func (c *call) int64(name string) int64 {
	n, _ := strconv.ParseInt(c.params[name], 10, 64)
	return n
}

// problem is the error of a refused call.
type problem struct {
	status int
	text   string
	// movedTo is the id that a chat has now, 0 for none; see ResponseParameters.
	movedTo int64
}

func refuse(format string, args ...any) *problem {
	return &problem{status: http.StatusBadRequest, text: "Bad Request: " + fmt.Sprintf(format, args...)}
}
