package webui

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// Clients get the form that they want most, and each form has its own tag.
func TestServe(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("one();", 1000)
	f := newFiles()
	from := newInstance(t, scripts(body))
	file := packed(t, f, from, script)
	plain, zstd, gzip := `"`+file.hash+`"`, `"`+file.hash+`.zstd"`, `"`+file.hash+`.gzip"`
	const modified = "Sun, 22 Nov 2026 04:16:37 GMT"
	for _, c := range []struct {
		name     string
		header   map[string]string
		status   int
		encoding string
		etag     string
		body     string // "" for all
	}{
		{name: "no wish", encoding: "", etag: plain},
		{name: "browser", header: map[string]string{"Accept-Encoding": "gzip, deflate, br, zstd"}, encoding: "zstd", etag: zstd},
		{name: "browser without TLS", header: map[string]string{"Accept-Encoding": "gzip, deflate"}, encoding: "gzip", etag: gzip},
		{name: "old name", header: map[string]string{"Accept-Encoding": "x-gzip"}, encoding: "gzip", etag: gzip},
		{name: "only br", header: map[string]string{"Accept-Encoding": "br"}, etag: plain},
		{name: "preference", header: map[string]string{"Accept-Encoding": "zstd;q=0.5, gzip;q=0.8"}, encoding: "gzip", etag: gzip},
		{name: "refused", header: map[string]string{"Accept-Encoding": "zstd;q=0, gzip;q=0.0"}, etag: plain},
		{name: "capitals and spaces", header: map[string]string{"Accept-Encoding": " ZSTD ; Q=1 "}, encoding: "zstd", etag: zstd},
		{name: "all but one", header: map[string]string{"Accept-Encoding": "zstd;q=0, *"}, encoding: "gzip", etag: gzip},
		{name: "anything", header: map[string]string{"Accept-Encoding": "*"}, encoding: "zstd", etag: zstd},
		{name: "rather as it is", header: map[string]string{"Accept-Encoding": "identity, gzip;q=0.5"}, etag: plain},
		{name: "nothing at all", header: map[string]string{"Accept-Encoding": "identity;q=0, br"}, etag: plain},
		{name: "nonsense", header: map[string]string{"Accept-Encoding": "zstd;q=x, gzip;q=nan,;;,"}, etag: plain},

		{name: "has it", header: map[string]string{"Accept-Encoding": "zstd", "If-None-Match": zstd}, status: 304, etag: zstd},
		{name: "has it in a list", header: map[string]string{"Accept-Encoding": "zstd", "If-None-Match": `"x", W/` + zstd}, status: 304, etag: zstd},
		{name: "has another form", header: map[string]string{"Accept-Encoding": "gzip", "If-None-Match": zstd}, encoding: "gzip", etag: gzip},
		{name: "has the plain one", header: map[string]string{"Accept-Encoding": "zstd", "If-None-Match": plain}, status: 304, etag: plain},
		{name: "has an older one", header: map[string]string{"Accept-Encoding": "gzip", "If-None-Match": `"18ea42ef3619fdd9-58daf2"`}, encoding: "gzip", etag: gzip},
		{name: "has one as young", header: map[string]string{"If-Modified-Since": modified}, status: 304, etag: plain},
		{name: "has one that is older", header: map[string]string{"If-Modified-Since": "Sun, 22 Nov 2026 04:16:36 GMT"}, etag: plain},
		{name: "the tag counts more", header: map[string]string{"If-None-Match": `"x"`, "If-Modified-Since": modified}, etag: plain},
		{name: "means another one", header: map[string]string{"If-Match": `"x"`}, status: 412},

		{name: "a part", header: map[string]string{"Accept-Encoding": "zstd", "Range": "bytes=6-11"}, status: 206, etag: plain, body: "one();"},
		{name: "the end", header: map[string]string{"Range": "bytes=-3"}, status: 206, etag: plain, body: "();"},
		{name: "a part of this", header: map[string]string{"Accept-Encoding": "zstd", "Range": "bytes=0-2", "If-Range": plain}, status: 206, etag: plain, body: "one"},
		{name: "a part of another form", header: map[string]string{"Accept-Encoding": "zstd", "Range": "bytes=0-2", "If-Range": zstd}, etag: plain},
		{name: "beyond", header: map[string]string{"Range": "bytes=6000-"}, status: 416},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{}
			for name, value := range c.header {
				header.Set(name, value)
			}
			if c.status == 0 {
				c.status = 200
			}
			var length string
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				resp := serve(file, method, header)
				h := resp.Header
				require.Equal(t, c.status, resp.StatusCode)
				require.Equal(t, []string{"Accept-Encoding"}, h.Values("Vary"))
				require.Equal(t, c.etag, h.Get("Etag"))
				raw := must.Get(io.ReadAll(resp.Body))(t)
				got := unpack(t, ofBody(resp, method), bytes.NewReader(raw))
				if c.status != 200 && c.status != 206 {
					require.Empty(t, got)
					continue
				}
				require.Equal(t, c.encoding, h.Get("Content-Encoding"))
				require.Equal(t, "application/javascript", h.Get("Content-Type"))
				require.Equal(t, modified, h.Get("Last-Modified"))
				require.NotEmpty(t, h.Get("Content-Length"))
				if method == http.MethodHead {
					require.Empty(t, got)
					require.Equal(t, length, h.Get("Content-Length"))
					continue
				}
				length = h.Get("Content-Length")
				require.Len(t, raw, int(resp.ContentLength))
				if c.body == "" {
					c.body = body
				}
				require.Equal(t, c.body, got)
			}
		})
	}
	require.Equal(t, 1, from.times(script))
}

// ofBody is the coding of a body, which an answer without one does not have.
func ofBody(resp *http.Response, method string) string {
	if method == http.MethodHead || resp.StatusCode != http.StatusOK {
		return ""
	}
	return resp.Header.Get("Content-Encoding")
}

// Pictures and fonts are compressed already. What is too small to gain by it
// stays as it is, too.
func TestWhatIsNotCompressed(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct {
		size int
		want bool
	}{
		"application/javascript": {512, true}, "text/css": {511, false}, "text/css; charset=utf-8": {512, true}, "image/svg+xml": {600, true},
		"font/woff2": {600, false}, "image/png": {600, false}, "": {600, false}, ";": {600, false},
	} {
		file := &File{header: http.Header{"Content-Type": {kind}}, plain: form{body: make([]byte, c.size)}}
		require.Equal(t, c.want, file.compressible(), kind)
		resp := serve(file, http.MethodGet, http.Header{"Accept-Encoding": {"zstd"}})
		require.Equal(t, c.want, resp.Header.Get("Vary") != "", kind)
		require.Empty(t, resp.Header.Get("Content-Encoding"))
	}
}

// Odd headers of clients choose some form, and nothing breaks.
func FuzzAcceptEncoding(f *testing.F) {
	for _, seed := range []string{"gzip, deflate, br, zstd", "*;q=0", "zstd;q=1e400", "gzip;q=-1;q=nan", ",;=,;q"} {
		f.Add(seed)
	}
	forms := []form{{"zstd", nil}, {"gzip", nil}}
	f.Fuzz(func(t *testing.T, accepted string) {
		header := http.Header{"Accept-Encoding": {accepted}}
		for name, q := range acceptedEncodings(header) {
			if !(q >= 0 && q <= 1) || name == "" {
				t.Errorf("%q: %v", name, q)
			}
		}
		if got := choose(header, form{}, forms).encoding; got != "" && !strings.Contains(strings.ToLower(accepted), got) && !strings.Contains(accepted, "*") {
			t.Errorf("%q was not asked for", got)
		}
	})
}

func TestHashedNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"/assets/index-vtow2bzT.js": true, "/assets/manifest-CebUEmtR.json": true, "/assets/rolldown-runtime-G-74P12b.js": true,
		"/assets/a-b-c-_bC-d0fG.woff2": true, "/assets/vendor-vue-core-BZZQdWHo.js": true,
		// Of the build of 1.49 too, but under names of their own.
		"/assets/sorted-custom-node-map.json": false, "/assets/favicon.ico": false, "/assets/CREDIT.txt": false,
		"/assets/images/logo-AbCd1234.svg": false, "/assets/lib/vue-AbCd1234.js": false,
		"/assets/app-settings.js": false, "/assets/app-Settings.js": false, "/assets/a-node-map.js": false, "/assets/my-LoadNode.html": false,
		"/extensions/pack/index-vtow2bzT.js": false, "/index-vtow2bzT.js": false, "/api/assets/index-vtow2bzT.js": false,
		"/assets/x-vtow2bzT.py": false, "/assets/-vtow2bzT.js": false, "/assets/x-vtow2bz.js": false,
	} {
		require.Equal(t, want, IsHashed(name), name)
	}
}

func TestFilesOfTheBuild(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"/assets/index-vtow2bzT.js": true, library: true, "/assets/sorted-custom-node-map.json": true, "/assets/images/logo.svg": true,
		"/assets/lib/primevue/index.mjs": true,
		"/assets/":                       false, "/assets": false, "/assets/lib": false, "/assets/index.html": false, "/assets/run.py": false, "/assets/.js": true,
		"/assets/../secret.js": false, "/assets/lib//vue.js": false, "/assets/./vue.js": false, "/extensions/pack/vue.js": false,
		"/api/assets/lib/vue.js": false, "assets/vue.js": false,
	} {
		require.Equal(t, want, IsFile(name), name)
	}
}

// A file of a folder is read once for each content that it has, and compressed.
func TestLocal(t *testing.T) {
	t.Parallel()
	f := newFiles()
	body, reads := strings.Repeat("one();", 1000), 0
	read := func() ([]byte, error) { reads++; return []byte(body), nil }
	l := Local{Path: "/srv/ui/assets/a.js", Stamp: "1", Type: "application/javascript", Modified: time.Unix(1, 0), Size: int64(len(body))}
	for range 3 {
		file := must.Get(f.Local(l, read))(t)
		require.Equal(t, body, string(file.plain.body))
	}
	require.Equal(t, 1, reads)

	file := <-f.packs
	forms, err := new(packer).pack(file.plain.body)
	require.NoError(t, err)
	f.keepPacked(file, forms)
	file = must.Get(f.Local(l, read))(t)
	resp := serve(file, http.MethodGet, http.Header{"Accept-Encoding": {"zstd"}})
	require.Equal(t, `"1.zstd"`, resp.Header.Get("Etag"))
	require.Equal(t, body, unpack(t, "zstd", resp.Body))
	require.Equal(t, `"1"`, serve(file, http.MethodGet, http.Header{}).Header.Get("Etag"))

	body = strings.Repeat("two();", 1001)
	l.Stamp, l.Size = "2", int64(len(body))
	file = must.Get(f.Local(l, read))(t)
	require.Equal(t, body, string(file.plain.body))
	require.Len(t, f.files, 1)
	require.EqualValues(t, len(body), f.size)
}

// What cannot be compressed or read, or changes while it is read, is not kept.
func TestLocalsThatAreNotKept(t *testing.T) {
	t.Parallel()
	const script, picture = "application/javascript", "image/png"
	failed := errors.New("no such disk")
	for name, c := range map[string]struct {
		local Local
		size  int // of what is read
		err   error
	}{
		"a picture":      {local: Local{Type: picture, Size: 1000}, size: 1000},
		"small":          {local: Local{Type: script, Size: 100}, size: 100},
		"too large":      {local: Local{Type: script, Size: maxFile + 1}, size: maxFile + 1},
		"it grew":        {local: Local{Type: script, Size: 1000}, size: 1001},
		"it shrank":      {local: Local{Type: script, Size: 1000}, size: 10},
		"cannot be read": {local: Local{Type: script, Size: 1000}, err: failed},
	} {
		f := newFiles()
		file, err := f.Local(c.local, func() ([]byte, error) { return make([]byte, c.size), c.err })
		require.ErrorIs(t, err, c.err, name)
		require.Nil(t, file, name)
		require.Empty(t, f.files, name)
	}
}
