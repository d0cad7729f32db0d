package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
)

// linkTo asks for a link to a file.
func (b *bench) linkTo(body string) (int, string) {
	b.t.Helper()
	status, answer := b.post("/hub/files", body)
	var link struct {
		URL     string
		Expires int64
	}
	require.NoError(b.t, json.Unmarshal(answer, &link), string(answer))
	return status, link.URL
}

func TestSignedLinks(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, func(b *bench) { b.tenant = "telegram:12345" })
	name := b.finished(b.submit(picture(0xff), "ann")).Outputs["2"].Images[0].Filename
	_, whole := b.get("/view?filename=" + name)
	status, link := b.linkTo(fmt.Sprintf(`{"filename": %q}`, name))
	require.Equal(t, http.StatusOK, status)
	require.True(t, strings.HasPrefix(link, "/hub/files/"+name+"?exp="), link)
	require.NotContains(t, link, "12345", "a link tells nobody whose it is")

	fetch := func(link string, header ...string) (*http.Response, string) {
		r, err := http.NewRequest(http.MethodGet, b.web.URL+link, http.NoBody)
		require.NoError(t, err)
		for n := 0; n+1 < len(header); n += 2 {
			r.Header.Set(header[n], header[n+1])
		}
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		_, body := read(t, response)
		return response, string(body)
	}
	// It works for anybody, also from a page of another site.
	b.tenant = "somebody else"
	response, body := fetch(link, "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, string(whole), body)
	require.Equal(t, "image/png", response.Header.Get("Content-Type"))
	require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
	require.Equal(t, "inline; filename="+name, response.Header.Get("Content-Disposition"))
	response, body = fetch(link, "Range", "bytes=1-3")
	require.Equal(t, http.StatusPartialContent, response.StatusCode)
	require.Equal(t, "PNG", body)
	response, _ = fetch(link, "If-None-Match", response.Header.Get("Etag"))
	require.Equal(t, http.StatusNotModified, response.StatusCode)

	// Nobody gets a link to another tenant's file, nor to none.
	status, _ = b.linkTo(fmt.Sprintf(`{"filename": %q}`, name))
	require.Equal(t, http.StatusNotFound, status)
	b.tenant = "telegram:12345"
	for ask, want := range map[string]int{
		`{"filename": "ComfyUI_00099_.png"}`:                     http.StatusNotFound,
		`{"filename": "../../etc/passwd"}`:                       http.StatusNotFound,
		fmt.Sprintf(`{"filename": %q, "type": "input"}`, name):   http.StatusNotFound,
		fmt.Sprintf(`{"filename": %q, "type": "nothing"}`, name): http.StatusNotFound,
		fmt.Sprintf(`{"filename": %q, "expires_in": 0}`, name):   http.StatusBadRequest,
		fmt.Sprintf(`{"filename": %q, "expires_in": 1e9}`, name): http.StatusBadRequest,
		`{}`:                              http.StatusBadRequest,
		`[]`:                              http.StatusBadRequest,
		`{"filename": 3}`:                 http.StatusBadRequest,
		`{"filename": "a", "type": null}`: http.StatusNotFound,
	} {
		status, _ = b.linkTo(ask)
		require.Equal(t, want, status, ask)
	}

	// Links that were tampered with.
	parsed, err := url.Parse(link)
	require.NoError(t, err)
	exp, sig := parsed.Query().Get("exp"), parsed.Query().Get("sig")
	other := b.finished(b.submit(picture(0xff00), "ann")).Outputs["2"].Images[0].Filename
	for _, forged := range []string{
		"/hub/files/" + name, "/hub/files/" + name + "?sig=" + sig, "/hub/files/" + name + "?exp=" + exp,
		"/hub/files/" + name + "?exp=9" + exp + "&sig=" + sig, "/hub/files/" + other + "?exp=" + exp + "&sig=" + sig,
		"/hub/files/" + name + "?exp=" + exp + "&sig=" + strings.ToLower(sig), "/hub/files/" + name + "?exp=" + exp + "&sig=%00",
	} {
		response, _ = fetch(forged)
		require.Equal(t, http.StatusForbidden, response.StatusCode, forged)
	}

	// A restart changes nothing; what is deleted is gone; time passes.
	b.stop()
	b.start()
	response, _ = fetch(link)
	require.Equal(t, http.StatusOK, response.StatusCode)
	_, brief := b.linkTo(fmt.Sprintf(`{"filename": %q, "expires_in": 1}`, name))
	require.Eventually(t, func() bool {
		response, _ = fetch(brief)
		return response.StatusCode == http.StatusGone
	}, 30*time.Second, 50*time.Millisecond)
}

func TestSignerKeepsToItsKey(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	one, err := newSigner([]byte("one"))
	require.NoError(t, err)
	two, err := newSigner([]byte("two"))
	require.NoError(t, err)
	for _, name := range []string{"a.png", "with space.mp4", "100%.png", "семь.webp", "a?b#c&d=e.png", "x:1.png"} {
		ref := files.Ref{Type: "output", Subfolder: "sub/folder", Filename: name}
		link, err := one.link("ann", ref, now)
		require.NoError(t, err)
		u, err := url.Parse(link)
		require.NoError(t, err)
		got := strings.TrimPrefix(u.Path, linkPath)
		require.Equal(t, name, got)

		tenant, file, err := one.open(got, u.Query(), now.Add(-time.Second))
		require.NoError(t, err)
		require.Equal(t, "ann", tenant)
		require.Equal(t, ref, file)
		_, _, err = one.open(got, u.Query(), now)
		require.ErrorIs(t, err, errExpired)
		_, _, err = two.open(got, u.Query(), now.Add(-time.Second))
		require.ErrorIs(t, err, errForged)
	}
}

func FuzzSignerOpen(f *testing.F) {
	s, err := newSigner([]byte("a key"))
	require.NoError(f, err)
	f.Add("a.png", "1800000000", "AAAA")
	f.Fuzz(func(t *testing.T, name, exp, sig string) {
		_, _, err := s.open(name, url.Values{"exp": {exp}, "sig": {sig}}, time.Unix(1, 0))
		require.ErrorIs(t, err, errForged)
	})
}
