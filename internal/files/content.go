package files

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/budget"
)

const (
	// sendBuffer is how much of a body is read and written at once, in bytes. With a quarter of it,
	// system calls would be a third of the work for a picture.
	sendBuffer = 128 << 10
	// smallBuffer is the same for a caller that already has many large ones, and may not be reading
	// from any of its connections.
	smallBuffer = 16 << 10
)

// Content is a file that ServeContent sends.
type Content struct {
	ETag     string
	Modified time.Time
	Size     int64 // bytes
	// Describe sets the headers that every answer has, whatever its status.
	Describe func(http.Header)
	// Open reads length bytes from offset on.
	Open func(ctx context.Context, offset, length int64) (io.ReadCloser, error)
	// Logger is told when the body breaks off.
	Logger *slog.Logger
}

// ServeContent answers a GET or HEAD of a file as ComfyUI's server does, with
// conditions and a single range. An error means that nothing was answered yet.
func ServeContent(w http.ResponseWriter, r *http.Request, c Content) error {
	part := byteRange{0, c.Size}
	status := checkConditions(r.Header, c.ETag, c.Modified)
	if asked := r.Header.Get("Range"); status == http.StatusOK && asked != "" && rangeHolds(r.Header, c.ETag, c.Modified) {
		var ok bool
		if part, ok = parseRange(asked, c.Size); ok {
			status = http.StatusPartialContent
		} else {
			status = http.StatusRequestedRangeNotSatisfiable
		}
	}
	var body io.ReadCloser
	if r.Method != http.MethodHead && (status == http.StatusOK || status == http.StatusPartialContent) {
		var err error
		// Before the first header, so that a body that cannot be read results in a proper error.
		if body, err = c.Open(r.Context(), part.from, part.length); err != nil {
			return err
		}
		defer body.Close()
	}
	h := w.Header()
	c.Describe(h)
	switch status {
	case http.StatusRequestedRangeNotSatisfiable:
		h.Set("Content-Range", "bytes */"+strconv.FormatInt(c.Size, 10))
		answerEmptyTyped(w, status)
		return nil
	case http.StatusPreconditionFailed:
		answerEmptyTyped(w, status)
		return nil
	}
	h.Set("Etag", c.ETag)
	h.Set("Last-Modified", c.Modified.UTC().Format(http.TimeFormat))
	if status == http.StatusNotModified {
		w.WriteHeader(status)
		return nil
	}
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Length", strconv.FormatInt(part.length, 10))
	if status == http.StatusPartialContent {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.from, part.from+part.length-1, c.Size))
	}
	w.WriteHeader(status)
	if body != nil {
		sendBody(r.Context(), w, body, part.length, c.Logger)
	}
	return nil
}

// ContentType guesses a type from a file's name as ComfyUI does.
func ContentType(name string) string { return mimeType(name) }

// sendBody copies a body to the client. Once the status is out, the only way to report an error is
// to cut the connection, so that the client does not take a part for the whole. The length is
// negative if it is unknown.
func sendBody(ctx context.Context, w http.ResponseWriter, body io.Reader, length int64, log *slog.Logger) {
	from := &sourceReader{r: body}
	size := max(1, min(uint64(length), sendBuffer))
	if held := budget.From(ctx); size > smallBuffer && !held.TakeSpare(budget.Memory, int64(size)) {
		size = smallBuffer
	} else if size > smallBuffer {
		defer held.Give(budget.Memory, int64(size))
	}
	buffer := make([]byte, size)
	// The writer's own way of reading uses a smaller buffer.
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, from, buffer); err != nil && from.err != nil {
		log.Warn("a file broke off while it was sent", "error", from.err)
		panic(http.ErrAbortHandler)
	}
}

// answerEmptyTyped is an empty answer that keeps its Content-Type.
func answerEmptyTyped(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
}
