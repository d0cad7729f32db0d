package hub

import (
	"context"
	"crypto/x509"
	"fmt"
	"image/color"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/submit"
)

// elsewhere is a server on the internet, as far as the hub knows.
func elsewhere(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(handler)
	t.Cleanup(s.Close)
	return s
}

// fetchingFrom is a hub that may fetch from a server.
func fetchingFrom(t *testing.T, limits config.TenantLimits, server *httptest.Server, change ...func(*bench)) *bench {
	t.Helper()
	u := must(url.Parse(server.URL))(t)
	hosts := must(egress.ParseHosts([]string{u.Host}))(t)
	b := shared(t, limits, append([]func(*bench){func(b *bench) {
		b.instances = append(b.instances, newInstance(t, sim.Config{}))
		b.settings.InputsFrom = hosts
	}}, change...)...)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	b.hub.submitter.Fetcher.Options.Roots = roots
	return b
}

func TestFileBehindAURL(t *testing.T) {
	t.Parallel()
	picture := pixel(t, color.Gray{9})
	var asked atomic.Int64
	server := elsewhere(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/moved.png" {
			http.Redirect(w, r, "/a.png", http.StatusFound)
			return
		}
		w.Header().Set("Content-Type", "text/html") // what counts is the content
		_, _ = io.WriteString(w, picture)
	})
	b := fetchingFrom(t, config.TenantLimits{}, server)
	var names []string
	for n, tenant := range []string{"ann", "bob"} {
		id := fmt.Sprintf("fetched-%d", n)
		link := server.URL + "/a.png?signature=secret"
		graph := fmt.Sprintf(`{"1": {"class_type": "LoadImage", "inputs": {"image": %q}}, "3": {"class_type": "LoadImage", "inputs": {"image": %q}},
			"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
			"4": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "x"}}}`, link, link)
		b.acts(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, graph, id))
		name := b.carriedName(tenant, id)
		require.Regexp(t, `^embedded/[0-9a-f]{32}\.png$`, name)
		names = append(names, name)
		_, got := b.as(tenant, "GET", "/view?type=input&subfolder=embedded&filename="+strings.TrimPrefix(name, "embedded/"), "")
		require.Equal(t, picture, got)
		require.EqualValues(t, 1, b.uploadCount(tenant))
		require.EqualValues(t, n+1, asked.Load(), "a URL is fetched once for a prompt")
		_, history := b.as(tenant, "GET", "/history/"+id, "")
		require.NotContains(t, history, "secret", "a signed link is not kept")
	}
	require.Equal(t, names[0], names[1], "the name comes from the content")
	answered(b.as("eve", "GET", "/view?type=input&subfolder=embedded&filename="+strings.TrimPrefix(names[0], "embedded/"), ""))(t, http.StatusNotFound)
	b.acts("ann", "POST", "/prompt", `{"prompt": `+loading(server.URL+"/moved.png")+`}`)
	require.Zero(t, b.hub.submitter.Fetcher.Busy(), "no turn is left over")
}

func TestRefusedURLs(t *testing.T) {
	t.Parallel()
	private := elsewhere(t, func(http.ResponseWriter, *http.Request) { t.Error("a server that is not allowed was called") })
	big := "\x89PNG\r\n\x1a\n" + strings.Repeat("x", 1000)
	server := elsewhere(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			_, _ = io.WriteString(w, "\x89PNG\r\n\x1a\n"+strings.Repeat("x", 600))
		case "/good2":
			_, _ = io.WriteString(w, "\x89PNG\r\n\x1a\n"+strings.Repeat("y", 600))
		case "/private":
			http.Redirect(w, r, private.URL, http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/page":
			_, _ = io.WriteString(w, "<html>")
		case "/empty":
		case "/big":
			_, _ = io.WriteString(w, big)
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, big); err != nil {
					return
				}
			}
		case "/broken":
			w.Header().Set("Content-Length", "900")
			_, _ = io.WriteString(w, "\x89PNG\r\n\x1a\n")
		default:
			http.NotFound(w, r)
		}
	})
	b := fetchingFrom(t, config.TenantLimits{}, server, func(b *bench) { b.settings.MaxUpload = 1000 })
	u := must(url.Parse(server.URL))(t)
	tooLarge := "the files behind a prompt's URLs may have 1000 bytes together"
	for link, reason := range map[string]string{
		server.URL + "/none":    "the URL was answered with status 404",
		server.URL + "/private": "the hub's operator does not allow this host",
		server.URL + "/loop":    "the URL redirects too often",
		server.URL + "/page":    "the URL leads to no picture, video or sound of a known format",
		server.URL + "/empty":   "the URL leads to no picture, video or sound of a known format",
		server.URL + "/big":     tooLarge,
		server.URL + "/endless": tooLarge,
		server.URL + "/broken":  "the URL cannot be fetched",
		private.URL:             "the hub's operator does not allow this host",
		"http://" + u.Host:      "only https:// URLs may be called",
		"https://me@" + u.Host:  "the URL has a user name",
		server.URL + "/a b":     "the URL is not valid",
		server.URL + "/" + strings.Repeat("a", submit.MaxURL): "a URL can have 8190 bytes",
	} {
		graph := fmt.Sprintf(`{"1": {"class_type": "LoadImage", "inputs": {"image": %q}}, "3": {"class_type": "LoadImage", "inputs": {"image": %q}},
			"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
			"4": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "x"}}}`, dataURL(pixel(t, color.Gray{1})), link+"#secret")
		answer := answered(b.as("ann", "POST", "/prompt", `{"prompt": `+graph+`}`))(t, http.StatusBadRequest, link)
		refusal := nodeErrors(t, answer)
		require.Len(t, refusal, 1)
		require.Equal(t, "image - Invalid image file: "+reason, refusal["3"].Errors[0].Details, link)
		require.NotContains(t, answer, "secret")
		require.Zero(t, b.uploadCount("ann"), link)
	}
	both := fmt.Sprintf(`{"1": {"class_type": "LoadImage", "inputs": {"image": %q}}, "2": {"class_type": "LoadImage", "inputs": {"image": %q}}}`,
		server.URL+"/good", server.URL+"/good2")
	_, answer := b.as("ann", "POST", "/prompt", `{"prompt": `+both+`}`)
	require.Contains(t, answer, tooLarge, "all files of a prompt count together")
	require.Zero(t, b.hub.submitter.Fetcher.Busy())
}

// Without hosts that may be called, a URL is what it is to ComfyUI: not a file name.
func TestURLsAreOff(t *testing.T) {
	t.Parallel()
	server := elsewhere(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was called") })
	b := shared(t, config.TenantLimits{}, serving(sim.Config{}))
	require.Contains(t, answered(b.as("ann", "POST", "/prompt", `{"prompt": `+loading(server.URL)+`}`))(t, http.StatusBadRequest), "image - Invalid image file: "+server.URL)
}

// A client that hangs up ends the fetching, and its turn.
func TestFetchingEndsWithItsClient(t *testing.T) {
	t.Parallel()
	called, ended := make(chan struct{}), make(chan struct{})
	server := elsewhere(t, func(_ http.ResponseWriter, r *http.Request) {
		close(called)
		<-r.Context().Done()
		close(ended)
	})
	b := fetchingFrom(t, config.TenantLimits{}, server)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	p := submissionOf(t, loading(server.URL))
	go func() {
		b.hub.Submitter().Submit(ctx, p, func(_ submit.Accepted, err error) { done <- err })
	}()
	<-called
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	<-ended
	eventually(t, func() bool { return b.hub.submitter.Fetcher.Busy() == 0 }, time.Minute, time.Millisecond)
}
