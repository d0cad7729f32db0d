package overflow

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/facade"
)

// maxFiles and maxBytes bound the files of a run.
const (
	maxFiles = 1000
	maxBytes = 8 << 30
)

// silentFor is how long a link may give nothing before it is fetched anew.
const silentFor = time.Minute

// extension is that of a file name. It says what a file is.
var extension = regexp.MustCompile(`^\.[A-Za-z0-9]{1,8}$`)

// keeper keeps the files of a run.
type keeper struct {
	e   *Endpoint
	run *facade.Run
	// kept is how many of them are there, and left how many bytes may still come.
	kept int
	left int64
}

// keep stores the files of an answer that are not there yet.
func (k *keeper) keep(ctx context.Context, files []OutputFile) error {
	if len(files) > maxFiles {
		return fmt.Errorf("the endpoint gives more than %d files", maxFiles)
	}
	for _, f := range files[min(k.kept, len(files)):] {
		if err := k.one(ctx, f); err != nil {
			return err
		}
		k.kept++
	}
	return nil
}

// one stores a file.
func (k *keeper) one(ctx context.Context, f OutputFile) error {
	content, done, err := k.open(ctx, f)
	if err != nil {
		return err
	}
	defer done()
	in := bufio.NewReader(content)
	node := nodeOf(k.run, f)
	count := &counted{in, &k.left}
	return k.run.Save(node, facade.OutputPrefix(k.run.Graph.Object(node)), extensionOf(f, in), count)
}

// open opens a file, in the answer or elsewhere.
func (k *keeper) open(ctx context.Context, f OutputFile) (content io.Reader, done func(), err error) {
	if f.URL == "" {
		text := f.Base64
		if strings.HasPrefix(text, "data:") {
			_, text, _ = strings.Cut(text, ",")
		}
		return base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)), func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	body, _, err := k.e.fetch.Get(ctx, f.URL, "*/*")
	if err != nil {
		cancel()
		if of, ok := errors.AsType[*url.Error](err); ok { // the link is a secret
			err = of.Err
		}
		k.e.o.Log.Warn("a file of a run cannot be fetched", "endpoint", k.e.o.Name, "reason", clip(err.Error()))
		return nil, nil, errors.New("a file of the run cannot be fetched") // an address is not for the client
	}
	silence := time.AfterFunc(silentFor, cancel)
	silence.Stop() // it counts while something is to come
	return heard{body, silence}, func() { cancel(); _ = body.Close() }, nil
}

// heard is a file that is given up when nothing of it comes any more: however long it is, a file
// that stands still holds a slot of the endpoint.
type heard struct {
	io.Reader

	silence *time.Timer
}

// Read implements [io.Reader].
func (h heard) Read(p []byte) (int, error) {
	h.silence.Reset(silentFor)
	defer h.silence.Stop() // storing what has come may take longer
	return h.Reader.Read(p)
}

// extensionOf is that of a file by its name, else by its content.
func extensionOf(f OutputFile, in *bufio.Reader) string {
	name := f.Name
	if u, err := url.Parse(f.URL); name == "" && err == nil {
		name = u.Path
	}
	if ext := path.Ext(name); extension.MatchString(ext) {
		return ext
	}
	head, _ := in.Peek(512) // a short file has less
	switch kind := http.DetectContentType(head); {
	case kind == "image/jpeg":
		return ".jpg"
	case kind == "image/webp", kind == "image/gif", kind == "video/mp4", kind == "video/webm":
		return "." + kind[strings.IndexByte(kind, '/')+1:]
	}
	return ".png"
}

// counted is a file that counts for what all files of a run may have.
type counted struct {
	io.Reader

	left *int64
}

// Read implements [io.Reader].
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if *c.left -= int64(n); *c.left < 0 {
		return n, fmt.Errorf("the files of the run have more than %d bytes", int64(maxBytes))
	}
	return n, err
}
