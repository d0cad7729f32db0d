package sim

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/image/draw"
)

// mimeByName guesses a content type the way Python's mimetypes does, with the same
// result on every machine.
func mimeByName(name string) string {
	switch ext := strings.ToLower(filepath.Ext(name)); ext {
	case ".png", ".gif", ".webp", ".bmp", ".avif":
		return "image/" + ext[1:]
	case ".jpg", ".jpeg":
		return "image/jpeg"
	case ".svg":
		return "image/svg+xml"
	case ".htm", ".html":
		return "text/html"
	case ".xhtml":
		return "application/xhtml+xml"
	case ".js", ".mjs":
		return "text/javascript"
	case ".css":
		return "text/css"
	case ".xml":
		return "text/xml"
	case ".txt":
		return "text/plain"
	case ".json":
		return "application/json"
	case ".mp4":
		return "video/mp4"
	case ".webm":
		return "video/webm"
	case ".wav":
		return "audio/x-wav"
	case ".mp3":
		return "audio/mpeg"
	case ".flac":
		return "audio/flac"
	case ".glb":
		return "model/gltf-binary"
	}
	return "application/octet-stream"
}

// fileRoutes stores and sends the files of the instance.
type fileRoutes struct {
	bodyLimit
	feat   features
	files  *folders
	assets bool // are registered
}

func (f *fileRoutes) getView(w http.ResponseWriter, r *http.Request) {
	q := query(r)
	full, name, status := f.viewed(q)
	if status != 0 {
		answerEmpty(w, status)
		return
	}
	h := w.Header()
	switch {
	case q.Has("preview"):
		f.viewPreview(w, r, full, name, q)
		return
	case q.Get("channel") == "rgb" || q.Get("channel") == "a":
		img, ok := readImageFile(full)
		if !ok {
			answerInternalError(w, r)
			return
		}
		if q.Get("channel") == "rgb" {
			img = opaqueCopy(img)
		} else {
			img = withAlpha(flat(img.Bounds().Dx(), img.Bounds().Dy(), color.NRGBA{A: 255}), img)
		}
		h.Set("Content-Disposition", `filename="`+name+`"`)
		answerBytes(w, http.StatusOK, "image/png", encodePNG(img, nil))
		return
	}
	kind := mimeByName(name)
	shown := name
	if f.feat.forcedDownload {
		h.Set("X-Content-Type-Options", "nosniff")
		shown = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name)
	}
	disposition := `filename="` + shown + `"`
	if f.dangerous(kind, r) {
		kind = "application/octet-stream"
		if f.feat.forcedDownload {
			disposition = "attachment; " + disposition
			h.Set("Cache-Control", "no-store")
			h.Set("Vary", "Sec-Fetch-Dest")
		}
	}
	h.Set("Content-Disposition", disposition)
	serveFile(w, r, full, kind)
}

// dangerous reports whether a browser could run content of this type.
func (f *fileRoutes) dangerous(kind string, r *http.Request) bool {
	switch kind {
	case "text/html", "application/xhtml+xml", "text/javascript", "text/css":
		return true
	case "image/svg+xml":
		return f.feat.forcedDownload && !(f.feat.svgByFetchDest && r.Header.Get("Sec-Fetch-Dest") == "image")
	case "text/xml":
		return f.feat.forcedDownload
	}
	return false
}

// viewed returns the file that a request refers to. The status is 0 if there is
// one.
func (f *fileRoutes) viewed(q url.Values) (full, name string, status int) {
	if !q.Has("filename") {
		return "", "", http.StatusNotFound
	}
	name, kind := annotated(q.Get("filename"))
	if kind == "" {
		kind = "output"
		if q.Has("type") {
			kind = q.Get("type")
		}
	}
	if name == "" || name[0] == '/' || strings.Contains(name, "..") {
		return "", "", http.StatusBadRequest
	}
	root := f.files.root(kind)
	if root == "" {
		return "", "", http.StatusBadRequest
	}
	dir, inside := within(root, q.Get("subfolder"))
	if !inside {
		return "", "", http.StatusForbidden
	}
	name = filepath.Base(name)
	full = filepath.Join(dir, name)
	if info, err := os.Stat(full); err != nil || !info.Mode().IsRegular() {
		return "", "", http.StatusNotFound
	}
	return full, name, 0
}

// viewPreview re-encodes a picture. A webp preview is always lossless here,
// whatever quality was requested.
func (f *fileRoutes) viewPreview(w http.ResponseWriter, r *http.Request, full, name string, q map[string][]string) {
	img, ok := readImageFile(full)
	if !ok {
		answerInternalError(w, r)
		return
	}
	parts := strings.Split(q["preview"][0], ";")
	format := parts[0]
	if format != "jpeg" || strings.Contains(strings.Join(q["channel"], ""), "a") {
		format = "webp"
	}
	quality := 90
	if last := parts[len(parts)-1]; isDigits(last) {
		quality, _ = strconv.Atoi(last) // isDigits checked it
	}
	w.Header().Set("Content-Disposition", `filename="`+name+`"`)
	if format == "webp" {
		answerBytes(w, http.StatusOK, "image/webp", encodeWebP(img))
		return
	}
	answerBytes(w, http.StatusOK, "image/jpeg", encodeJPEG(img, quality))
}

func readImageFile(full string) (*image.NRGBA, bool) {
	data, err := os.ReadFile(full)
	if err != nil {
		return nil, false
	}
	return decodeImage(data)
}

func decodeImage(data []byte) (*image.NRGBA, bool) {
	decoded, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, false
	}
	img := image.NewNRGBA(image.Rect(0, 0, decoded.Bounds().Dx(), decoded.Bounds().Dy()))
	draw.Draw(img, img.Bounds(), decoded, decoded.Bounds().Min, draw.Src)
	return img, true
}

// serveFile sends a file the way aiohttp does, with validators, single ranges, and
// 416 for anything odd in a Range header.
func serveFile(w http.ResponseWriter, r *http.Request, full, contentType string) {
	info, err := os.Stat(full)
	if err != nil {
		answerEmpty(w, http.StatusNotFound)
		return
	}
	data, err := os.ReadFile(full)
	if err != nil {
		answerInternalError(w, r)
		return
	}
	h := w.Header()
	etag := fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), len(data))
	modified := info.ModTime().UTC().Truncate(time.Second)
	h.Set("Content-Type", contentType)
	if notModified(r, etag, modified) {
		h.Set("Etag", etag)
		h.Set("Last-Modified", modified.Format(http.TimeFormat))
		w.WriteHeader(http.StatusNotModified)
		return
	}
	start, end, ok := byteRange(r, modified, len(data))
	if !ok {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", len(data)))
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		if f, ok := w.(http.Flusher); ok {
			f.Flush() // chunked, as the real server does it
		}
		return
	}
	h.Set("Etag", etag)
	h.Set("Last-Modified", modified.Format(http.TimeFormat))
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Length", strconv.Itoa(end-start))
	status := http.StatusOK
	if r.Header.Get("Range") != "" && ranged(r, modified) {
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, end-1, len(data)))
	}
	w.WriteHeader(status)
	_, _ = w.Write(data[start:end]) // the client may be gone
}

func notModified(r *http.Request, etag string, modified time.Time) bool {
	if match := r.Header.Get("If-None-Match"); match != "" {
		if match == "*" {
			return true
		}
		for tag := range strings.SplitSeq(match, ",") {
			if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == etag {
				return true
			}
		}
		return false
	}
	since, err := http.ParseTime(r.Header.Get("If-Modified-Since"))
	return err == nil && !modified.After(since)
}

// ranged reports whether the Range header counts. If-Range is only supported as a
// date.
func ranged(r *http.Request, modified time.Time) bool {
	since, err := http.ParseTime(r.Header.Get("If-Range"))
	return err != nil || !modified.After(since)
}

func byteRange(r *http.Request, modified time.Time, size int) (start, end int, ok bool) {
	header := r.Header.Get("Range")
	if header == "" || !ranged(r, modified) {
		return 0, size, true
	}
	spec, isBytes := strings.CutPrefix(header, "bytes=")
	from, to, isRange := strings.Cut(spec, "-")
	if !isBytes || !isRange || from != "" && !isDigits(from) || to != "" && !isDigits(to) || from == "" && to == "" {
		return 0, 0, false
	}
	a, _ := strconv.Atoi(from) // isDigits checked it, "" is 0
	b, _ := strconv.Atoi(to)
	switch {
	case from == "":
		start, end = max(0, size-b), size
	case to == "":
		start, end = a, size
	default:
		if b < a {
			return 0, 0, false
		}
		start, end = a, min(b+1, size)
	}
	return start, end, start < size
}
