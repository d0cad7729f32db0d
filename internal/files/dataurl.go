package files

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
)

// embeddedFolder is the input folder for files that came with a prompt, inside it or as a URL. The
// widgets of file inputs do not list it.
const embeddedFolder = "embedded"

// maxDataHeader bounds what comes before the content of a data: URL, in bytes.
const maxDataHeader = 256

// sniffed is how much of a file is needed to tell its format, in bytes.
const sniffed = 512

// Embedded is a file that came as a data: URL.
type Embedded struct {
	// Ref is the input it becomes. The name is derived from the content, so the same file always
	// has the same name.
	Ref job.FileRef
	// payload is base64 without padding, perhaps with line breaks.
	payload string
}

// DataURLError says what is wrong with a data: URL. Its text quotes nothing from the URL and can be
// shown to the sender.
type DataURLError struct{ Reason string }

func (e *DataURLError) Error() string { return e.Reason }

// ReadDataURL reads a file from a data: URL, which must be in base64. The file may have up to limit
// bytes, and its first bytes must be those of a picture, a video or a sound: the type that the URL
// claims does not count. The error is a *[DataURLError].
func ReadDataURL(url string, limit int64) (Embedded, error) {
	head, _, found := strings.Cut(url[:min(len(url), maxDataHeader)], ",")
	if !found || !strings.HasPrefix(head, "data:") || !strings.HasSuffix(strings.ToLower(head), ";base64") {
		return Embedded{}, &DataURLError{"a data: URL must begin with data:TYPE;base64,"}
	}
	e := Embedded{payload: strings.TrimRight(url[len(head)+1:], "=\r\n")}
	content := bufio.NewReaderSize(io.LimitReader(e.Content(), limit+1), sniffed)
	start, _ := content.Peek(sniffed) // an error comes up again
	ext := mediaExtension(start)
	hash := sha256.New()
	n, err := io.Copy(hash, content)
	switch {
	case err != nil:
		return Embedded{}, &DataURLError{"the data: URL is not valid base64"}
	case n > limit:
		return Embedded{}, &DataURLError{fmt.Sprintf("the file in the data: URL has more than %d bytes", limit)}
	case n == 0:
		return Embedded{}, &DataURLError{"the data: URL is empty"}
	case ext == "":
		return Embedded{}, &DataURLError{"the data: URL has no picture, video or sound of a known format"}
	}
	e.Ref = embeddedRef(hex.EncodeToString(hash.Sum(nil)), ext)
	return e, nil
}

// embeddedRef names a file by its SHA-256 in hex.
func embeddedRef(sum, ext string) job.FileRef {
	return job.FileRef{Type: job.TypeInput, Subfolder: embeddedFolder, Filename: sum[:32] + ext}
}

// Content reads the file from its start, again at each call.
func (e Embedded) Content() io.Reader {
	return base64.NewDecoder(base64.RawStdEncoding, strings.NewReader(e.payload))
}

// mediaExtensions are the formats that can be embedded, by net/http's names for them.
var mediaExtensions = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp", "image/gif": ".gif", "image/bmp": ".bmp",
	"video/mp4": ".mp4", "video/webm": ".webm", "video/avi": ".avi",
	"audio/mpeg": ".mp3", "audio/wave": ".wav", "application/ogg": ".ogg", "audio/aiff": ".aiff",
}

// mediaExtension tells the format of a file from its first bytes; "" if it is not a picture, video
// or sound.
func mediaExtension(start []byte) string {
	switch {
	case bytes.HasPrefix(start, []byte("fLaC")):
		return ".flac"
	case bytes.HasPrefix(start, []byte("II*\x00")), bytes.HasPrefix(start, []byte("MM\x00*")):
		return ".tiff"
	case len(start) >= 12 && string(start[4:12]) == "ftypavif":
		return ".avif"
	}
	return mediaExtensions[http.DetectContentType(start)]
}
