package webui

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// source is the instance that the page comes from, as far as is known.
type source struct {
	from *comfyui.Client
	// page tells two pages apart; "" while none was seen.
	page string
}

// Page says that an instance has answered with the web UI's page, or that a
// visitor has it still. If it is another page than before, no file of the old
// build may be shown with it.
func (f *Files) Page(from *comfyui.Client, header http.Header) {
	page := ""
	if tag, modified := header.Get("Etag"), header.Get("Last-Modified"); tag != "" && modified != "" {
		page = tag + " " + modified
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.source.from != from || f.source.page == page {
		return
	}
	f.source.page = page
	f.drop(key.isNamed)
}

// become makes an instance the source of the page, and reports whether it was
// not before.
func (f *Files) become(from *comfyui.Client) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.source.from == from {
		return false
	}
	f.source = source{from: from}
	f.drop(key.isNamed)
	return true
}
