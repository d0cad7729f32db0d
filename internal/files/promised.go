package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// keepsPromise returns a reader of the same bytes if they may be what the file's name promises.
// Neither a proxy that reports with status 200 that the server is down, nor a full disk that left
// nothing but a name, may become the picture of a prompt that went well.
func keepsPromise(from io.Reader, filename string) (io.Reader, error) {
	kind, form, _ := strings.Cut(mimeType(filename), "/")
	if kind != "image" && kind != "video" && kind != "audio" {
		return from, nil
	}
	r := bufio.NewReaderSize(from, sniffed)
	head, err := r.Peek(sniffed)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(head) == 0 {
		return nil, fmt.Errorf("%w: it sends an empty %s", ErrInstance, kind)
	}
	// A vector graphic may begin like a page.
	if form != "svg+xml" && strings.HasPrefix(http.DetectContentType(head), "text/html") {
		return nil, fmt.Errorf("%w: it sends a web page instead of a file of type %s", ErrInstance, kind)
	}
	return r, nil
}
