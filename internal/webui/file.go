package webui

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/files"
)

// File is one file that is kept, as it is and compressed.
type File struct {
	key      key
	hash     string // of the content
	header   http.Header
	modified time.Time
	plain    form
	// checked is when the instance gave this content last. Files.mu guards it.
	checked time.Time
	// packed are its compressed forms, the best first; nil until they are made.
	packed atomic.Pointer[[]form]
}

// form is a file in one Content-Encoding, "" for none.
type form struct {
	encoding string
	body     []byte
}

// minCompressed is the size from which a file is worth compressing, in bytes.
const minCompressed = 512

// compressibleTypes are the types outside text/ that are worth compressing.
var compressibleTypes = []string{
	"application/javascript", "application/json", "application/wasm", "application/vnd.ms-fontobject", "application/xml",
	"image/svg+xml", "image/x-icon", "image/vnd.microsoft.icon", "font/ttf", "font/otf", "application/x-font-ttf",
}

// compressible reports whether a file may have compressed forms, now or later.
func (f *File) compressible() bool {
	return compressible(f.header.Get("Content-Type"), int64(len(f.plain.body)))
}

func compressible(contentType string, size int64) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && size >= minCompressed && (strings.HasPrefix(kind, "text/") || slices.Contains(compressibleTypes, kind))
}

// size is what the file takes, in bytes.
func (f *File) size() int64 {
	n := len(f.plain.body)
	for _, p := range f.forms() {
		n += len(p.body)
	}
	return int64(n)
}

func (f *File) forms() []form {
	if packed := f.packed.Load(); packed != nil {
		return *packed
	}
	return nil
}

// Serve answers a GET or HEAD with the file in the best form that the client
// takes. A range is one of the file as it is, which all clients can join.
//
// describe adds headers; it can be nil.
func (f *File) Serve(w http.ResponseWriter, r *http.Request, log *slog.Logger, describe func(http.Header)) error {
	chosen := f.plain
	// What encode has compressed has the tag of the plain form, so a client that has
	// that keeps it.
	has := strings.Contains(r.Header.Get("If-None-Match"), f.etag(f.plain))
	if !has && r.Header.Get("Range") == "" {
		chosen = choose(r.Header, f.plain, f.forms())
	}
	return files.ServeContent(w, r, files.Content{
		ETag: f.etag(chosen), Modified: f.modified, Size: int64(len(chosen.body)), Logger: log,
		Describe: func(h http.Header) {
			for name, values := range f.header {
				h[name] = slices.Clone(values)
			}
			if describe != nil {
				describe(h)
			}
			if f.compressible() {
				h.Add("Vary", "Accept-Encoding")
			}
			if chosen.encoding != "" {
				h.Set("Content-Encoding", chosen.encoding)
			}
		},
		Open: func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(chosen.body[offset : offset+length])), nil
		},
	})
}

// etag names a form of the file. Caddy's encode cuts "-zstd" off the tags that
// clients send, so the form stands behind a dot.
func (f *File) etag(of form) string {
	if of.encoding == "" {
		return strconv.Quote(f.hash)
	}
	return strconv.Quote(f.hash + "." + of.encoding)
}

// choose is the form that a client wants most. Among equals it is the first; a
// client that takes none of them gets the plain one all the same.
func choose(h http.Header, plain form, packed []form) form {
	if len(packed) == 0 {
		return plain
	}
	accepted := acceptedEncodings(h)
	best, most := plain, 0.0
	for _, p := range packed {
		q, named := accepted[p.encoding]
		if !named {
			q = accepted["*"]
		}
		if q > most {
			best, most = p, q
		}
	}
	if q, named := accepted["identity"]; named && q > most {
		return plain
	}
	return best
}

// acceptedEncodings reads Accept-Encoding: how much each coding is wanted, from
// 0 to 1.
func acceptedEncodings(h http.Header) map[string]float64 {
	accepted := map[string]float64{}
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, parameters, _ := strings.Cut(part, ";")
		name = strings.ToLower(textproto.TrimString(name))
		if name == "" {
			continue
		}
		q := 1.0
		for parameter := range strings.SplitSeq(parameters, ";") {
			key, value, found := strings.Cut(parameter, "=")
			if found && strings.EqualFold(textproto.TrimString(key), "q") {
				n, err := strconv.ParseFloat(textproto.TrimString(value), 64)
				if err != nil || !(n >= 0) {
					n = 0 // nonsense: better what it surely takes
				}
				q = min(n, 1)
			}
		}
		accepted[cmp.Or(aliases[name], name)] = q
	}
	return accepted
}

// aliases are other names of codings, see RFC 9110.
var aliases = map[string]string{"x-gzip": "gzip"}
