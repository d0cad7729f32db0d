package plain

import (
	"bytes"
	_ "embed" // the document and the page
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
)

//go:embed openapi.json
var document []byte

//go:embed docs.html
var page []byte

// getDocument answers GET /openapi.json, with the path at which the requester finds the routes.
func (o *room) getDocument(w http.ResponseWriter, _ *http.Request, a api.Requester, _ []string) {
	const server = `{"url": "`
	api.WriteJSON(w, http.StatusOK, bytes.Replace(document, []byte(server+Prefix), []byte(server+a.Prefix+Prefix), 1))
}

// getDocs answers GET /docs: the routes of the document as a page that loads nothing else.
func (o *room) getDocs(w http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) {
	api.AsPage(w)
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_, _ = w.Write(page)
}
