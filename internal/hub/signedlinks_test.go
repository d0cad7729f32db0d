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

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/keyring"
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
	inBubble(t, func(t *testing.T) {
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
		// It works for anybody, even from a page of another site.
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

		// Nobody gets a link to another tenant's file or to a file that does not exist.
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

		// A restart changes nothing. A link stops working when its file is deleted or its time is up.
		b.stop()
		b.start()
		response, _ = fetch(link)
		require.Equal(t, http.StatusOK, response.StatusCode)
		_, brief := b.linkTo(fmt.Sprintf(`{"filename": %q, "expires_in": 1}`, name))
		eventually(t, func() bool {
			response, _ = fetch(brief)
			return response.StatusCode == http.StatusGone
		}, 30*time.Second, 50*time.Millisecond)
	})
}

// newSignerOf returns a signer for a storage.
func newSignerOf(t testing.TB, location string) *signer {
	t.Helper()
	storage, err := files.OpenStorage(t.Context(), location)
	require.NoError(t, err)
	t.Cleanup(func() { _ = storage.Close() })
	ring, err := keyring.Open(t.Context(), keyring.Options{Store: storage.KeyStore()})
	require.NoError(t, err)
	return newSigner(ring.Sealer(keyring.Links))
}

func TestSignerKeepsToItsKey(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		now := time.Unix(1_800_000_000, 0)
		location := t.TempDir()
		one, same, two := newSignerOf(t, location), newSignerOf(t, location), newSignerOf(t, t.TempDir())
		for _, name := range []string{"a.png", "with space.mp4", "100%.png", "семь.webp", "a?b#c&d=e.png", "x:1.png"} {
			ref := job.FileRef{Type: "output", Subfolder: "sub/folder", Filename: name}
			link, err := one.link("ann", ref, now.Add(-time.Hour), now)
			require.NoError(t, err)
			u, err := url.Parse(api.LinkPath + link)
			require.NoError(t, err)
			got := strings.TrimPrefix(u.Path, api.LinkPath)
			require.Equal(t, name, got)

			for _, s := range []*signer{one, same} {
				tenant, file, err := s.open(t.Context(), got, u.Query().Get("exp"), u.Query().Get("sig"), now.Add(-time.Second))
				require.NoError(t, err)
				require.Equal(t, "ann", tenant)
				require.Equal(t, ref, file)
			}
			_, _, err = one.open(t.Context(), got, u.Query().Get("exp"), u.Query().Get("sig"), now)
			require.ErrorIs(t, err, ErrLinkExpired)
			_, _, err = two.open(t.Context(), got, u.Query().Get("exp"), u.Query().Get("sig"), now.Add(-time.Second))
			require.ErrorIs(t, err, ErrLinkForged)
		}
	})
}

// Even with a key of the hub, nobody can make a link that works longer than the
// hub itself would allow.
func TestLinkLifeIsBoundedWhenOpened(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		now := time.Unix(1_800_000_000, 0)
		s := newSignerOf(t, t.TempDir())
		ref := job.FileRef{Type: "output", Filename: "a.png"}
		for _, tc := range []struct {
			name            string
			issued, expires time.Duration // from now
			want            error
		}{
			{"the longest", 0, MaxLinkLife, nil},
			{"made by a hub whose clock is ahead", clockSkew, MaxLinkLife + clockSkew, nil},
			{"nearly over", -MaxLinkLife + time.Second, time.Second, nil},
			{"over", -MaxLinkLife, 0, ErrLinkExpired},
			{"too long", 0, MaxLinkLife + time.Second, ErrLinkTooLong},
			{"for ever", 0, 100 * 365 * 24 * time.Hour, ErrLinkTooLong},
			{"for ever, made in the future", 99 * 365 * 24 * time.Hour, 99*365*24*time.Hour + time.Hour, ErrLinkTooLong},
			{"renewed", -MaxLinkLife, time.Hour, ErrLinkTooLong},
			{"made later than now", time.Hour, 2 * time.Hour, ErrLinkTooLong},
		} {
			link, err := s.link("ann", ref, now.Add(tc.issued), now.Add(tc.expires))
			require.NoError(t, err)
			u, err := url.Parse(api.LinkPath + link)
			require.NoError(t, err)
			_, _, err = s.open(t.Context(), "a.png", u.Query().Get("exp"), u.Query().Get("sig"), now)
			require.ErrorIs(t, err, tc.want, tc.name)
		}
	})
}

func TestLinkThatIsValidForTooLongIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		name := b.finished(b.submit(picture(0xff), "ann")).Outputs["2"].Images[0].Filename
		now := time.Now()
		link, err := b.hub.links.signer.link("", job.FileRef{Type: "output", Filename: name}, now, now.AddDate(10, 0, 0))
		require.NoError(t, err)
		status, body := b.get(api.LinkPath + link)
		require.Equal(t, http.StatusForbidden, status)
		require.Contains(t, string(body), "longer than links may")
	})
}

func FuzzSignerOpen(f *testing.F) {
	s := newSignerOf(f, f.TempDir())
	f.Add("a.png", "1800000000", "AAAA")
	f.Fuzz(func(t *testing.T, name, exp, sig string) {
		_, _, err := s.open(t.Context(), name, exp, sig, time.Unix(1, 0))
		require.ErrorIs(t, err, ErrLinkForged)
	})
}
