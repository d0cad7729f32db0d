package plain

import (
	_ "embed" // the document and the page
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
)

//go:embed openapi.json
var document []byte

//go:embed docs.html
var page []byte

// getDocument answers GET /openapi.json.
func (o *room) getDocument(w http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) {
	api.WriteJSON(w, http.StatusOK, document)
}

// getDocs answers GET /docs: the routes of the document as a page that loads nothing else.
func (o *room) getDocs(w http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) {
	api.AsPage(w)
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_, _ = w.Write(page)
}
