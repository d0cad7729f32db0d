package comfy

import (
	_ "embed"
	"io"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/text/language"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/api"
)

// waitingPages are shown by browsers while there is no web UI to show: the hub
// has no copy of its own, and the instance that gives one is not connected. They
// look again every few seconds.
var (
	//go:embed waiting.en.html
	waitingEnglish string
	//go:embed waiting.ru.html
	waitingRussian string
)

// lookAgain is how often they do, in seconds; the pages say the same.
const lookAgain = 3

// writeWaiting answers a request for the page while there is none: a page for
// browsers, in their language, and a line of text for other programs.
func writeWaiting(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Retry-After", strconv.Itoa(lookAgain))
	header.Set("Cache-Control", "no-store")
	header.Add("Vary", "Accept, Accept-Language")
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		api.WriteText(w, http.StatusServiceUnavailable, "ComfyHub is running, and the ComfyUI instance that its web UI comes from is not connected yet.\n")
		return
	}
	page, code := waitingEnglish, "en"
	if prefersRussian(r.Header.Get("Accept-Language")) {
		page, code = waitingRussian, "ru"
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Language", code)
	header.Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, page)
}

// prefersRussian reports whether an Accept-Language ranks Russian above English.
func prefersRussian(accepted string) bool {
	tags, _, err := language.ParseAcceptLanguage(accepted)
	if err != nil {
		return false
	}
	matcher := language.NewMatcher([]language.Tag{language.English, language.Russian})
	for _, tag := range tags { // the most wanted first
		// Less than High is another language that many who speak this one read.
		if _, n, confidence := matcher.Match(tag); confidence >= language.High {
			return n == 1
		}
	}
	return false
}

// isIndex reports whether a request asks for the web UI's page itself.
func isIndex(r *http.Request, asked aiohttp.Path) bool {
	name := asked.String()
	return r.Method == http.MethodGet && !upgrades(r) && (name == "/" || name == "/api/" || name == "/index.html")
}
