package files

import (
	"fmt"
	"net/http"
)

// conditions are the request headers that an instance must see. If-Range is decided here: ComfyUI's
// server does not understand an ETag in it.
var conditions = [...]string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"}

// contents are the answer's headers that belong to the bytes. Type and disposition are the hub's
// own, based on the name at the hub.
var contents = [...]string{"Content-Length", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified"}

// relay passes a file through from the instance that made it.
func (v *View) relay(w http.ResponseWriter, r *http.Request, e Entry) error {
	header := http.Header{}
	for _, name := range conditions {
		if value := r.Header.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	if asked := r.Header.Get("Range"); asked != "" && rangeHolds(r.Header, e.ETag, e.Modified) {
		header.Set("Range", asked)
	}
	resp, err := v.fetch(r.Context(), *e.Source, header)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInstance, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent, http.StatusNotModified,
		http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
	case http.StatusNotFound:
		return ErrGone
	default:
		return fmt.Errorf("%w: answers %d", ErrInstance, resp.StatusCode)
	}
	if replaced(resp, *e.Source) {
		return ErrChanged
	}
	describe(w, r, e)
	for _, name := range contents {
		if value := resp.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	if resp.StatusCode == http.StatusNotModified {
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(resp.StatusCode)
	if r.Method != http.MethodHead {
		v.send(r.Context(), w, resp.Body, resp.ContentLength)
	}
	return nil
}
