package api

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestContent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status      int
		types       []string
		disposition string
		want        string
	}{
		"a picture":                   {types: []string{"image/png"}, disposition: `filename="a.png"`, want: `filename="a.png"`},
		"a film":                      {types: []string{"video/mp4"}},
		"a sound":                     {types: []string{"Audio/X-Wav"}},
		"text":                        {types: []string{"text/plain; charset=utf-8"}},
		"JSON":                        {types: []string{"application/json; charset=utf-8"}},
		"SVG":                         {types: []string{"image/svg+xml"}, disposition: `filename="a.svg"`, want: `attachment; filename="a.svg"`},
		"SVG by another name":         {types: []string{"image/svg"}, want: "attachment"},
		"XML that claims a picture":   {types: []string{"image/x+xml"}, want: "attachment"},
		"XML that claims a film":      {types: []string{"video/xml"}, want: "attachment"},
		"a page":                      {types: []string{"text/html"}, disposition: `inline; filename=a.html`, want: "attachment; filename=a.html"},
		"a page that says inline":     {types: []string{"TEXT/HTML"}, disposition: " INLINE", want: "attachment"},
		"a download":                  {types: []string{"text/html"}, disposition: `Attachment; filename="a"`, want: `Attachment; filename="a"`},
		"PDF":                         {types: []string{"application/pdf"}, want: "attachment"},
		"no type, which is guessed":   {want: "attachment"},
		"two types":                   {types: []string{"text/plain", "text/html"}, want: "attachment"},
		"a list of types":             {types: []string{"text/plain;a=,text/html"}, want: "attachment"},
		"an error is read":            {status: http.StatusInternalServerError, types: []string{"text/html"}},
		"nothing is there":            {status: http.StatusNotFound},
		"a page that has not changed": {status: http.StatusNotModified},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := httptest.NewRecorder()
			w := asContent(got)
			w.Header()["Content-Type"] = c.types
			if c.disposition != "" {
				w.Header().Set("Content-Disposition", c.disposition)
			}
			w.Header().Set("Content-Security-Policy", "default-src *") // a machine's own
			w.WriteHeader(max(c.status, http.StatusOK))
			nosniff := "nosniff"
			if name == "nothing is there" {
				nosniff = ""
			}
			require.Equal(t, nosniff, got.Header().Get("X-Content-Type-Options"))
			want := contentPolicy
			if name == "a film" || name == "a sound" {
				want = mediaPolicy
			}
			require.Equal(t, []string{want}, got.Header()["Content-Security-Policy"])
			require.Equal(t, c.want, got.Header().Get("Content-Disposition"))
		})
	}
}

// A page is found through the writers that were put around it, and only it is left alone.
func TestAsPage(t *testing.T) {
	t.Parallel()
	got := httptest.NewRecorder()
	w := http.ResponseWriter(&LateWriter{ResponseWriter: asContent(got), Late: func(http.Header, int) {}})
	AsPage(w)
	w.Header().Set("Content-Type", "text/html")
	_, err := w.Write([]byte("<!doctype html>"))
	require.NoError(t, err)
	require.Equal(t, http.Header{"Content-Type": {"text/html"}}, got.Header())
	AsPage(httptest.NewRecorder()) // of a test that has no server
}
