package aiohttp

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp/aiohttptest"
)

func read(t *testing.T, raw string) (Path, error) {
	t.Helper()
	u, err := url.ParseRequestURI(raw)
	require.NoError(t, err, raw)
	return ReadPath(u)
}

func TestReadPath(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"/%71ueue":           "/queue",
		"/%61pi/%71ueue":     "/api/queue",
		"/history/a%2fb":     "/history/a%2Fb",
		"/%2571ueue":         "/%2571ueue",
		"/queue%3Fx":         "/queue?x",
		"/caf%C3%A9":         "/café",
		`/history/"a%2Fb`:    `/history/"a%2Fb`, // where EscapedPath would make a slash of it
		"http://h/%71ueue?x": "/queue",
		"/...":               "/...",
	} {
		p, err := read(t, raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, p.String(), raw)
	}
	for _, raw := range []string{
		"/queue%00", "/a%0Ab", "/a%7F", "/a%C2%85", `/a\b`, "/a%5Cb", "/.", "/..", "/a/../b", "/a/%2e%2e/b", "/a/.%2E", "/a/./b",
		"/%FF", "/%C3", "/%C0%AF", "/%ED%A0%80", "/queue#x", "http:queue", "*", "http://h",
	} {
		p, err := read(t, raw)
		require.ErrorIs(t, err, ErrRefused, raw)
		require.Zero(t, p)
	}
	p, err := ReadPath(&url.URL{Path: "/a/b c", RawPath: "/other"})
	require.NoError(t, err)
	require.Equal(t, "/a/b c", p.String(), "a RawPath that is not of the Path, after a rewrite, does not count")
	_, err = ReadPath(&url.URL{Path: "/%zz", RawPath: "/%zz"})
	require.NoError(t, err, "a percent sign in Path is one")
}

func TestPath(t *testing.T) {
	t.Parallel()
	p, err := read(t, "/api/a%2Fb%25%20c;x=1/%C3%BC")
	require.NoError(t, err)
	require.Equal(t, "/api/a/b% c;x=1/ü", p.Decoded())
	require.Equal(t, "/api/a%2Fb%25%20c;x=1/%C3%BC", p.Escaped())
	require.Equal(t, "/a%2Fb%25 c;x=1/ü", p.Bare().String())
	require.Equal(t, "/", MustPath("/api/").Bare().String())
	require.Equal(t, "/api", MustPath("/api").Bare().String())
	require.Equal(t, "/apix", MustPath("/apix").Bare().String())
	require.Panics(t, func() { MustPath("/a/..") })
	require.False(t, p.Climbs())
	climbs, err := read(t, "/pack/..%2Fx")
	require.NoError(t, err)
	require.True(t, climbs.Climbs())
	u := &url.URL{Scheme: "http", Host: "h", Opaque: "elsewhere"}
	p.Set(u)
	require.Equal(t, "http://h/api/a%2Fb%25%20c;x=1/%C3%BC", u.String())
}

func TestPattern(t *testing.T) {
	t.Parallel()
	cases := []struct {
		pattern, path string
		values        []string
		ok, resembles bool
	}{
		{pattern: "/queue", path: "/queue", ok: true, resembles: true},
		{pattern: "/history/*", path: "/history/a%2Fb%2525", values: []string{"a/b%25"}, ok: true, resembles: true},
		{pattern: "/history/*", path: "/history/a", values: []string{"a"}, ok: true, resembles: true},
		{pattern: "/history/*", path: "/history/{a}", resembles: true},
		{pattern: "/history/*", path: "/history/"},
		{pattern: "/preview/*/**", path: "/preview/a/b/c%2Fd", values: []string{"a", "b/c/d"}, ok: true, resembles: true},
		{pattern: "/preview/*/**", path: "/preview/a/", values: []string{"a", ""}, ok: true, resembles: true},
		{pattern: "/preview/*/**", path: "/preview/a", resembles: true},
		{pattern: "/queue", path: "//queue", resembles: true},
		{pattern: "/queue", path: "/QUEUE/", resembles: true},
		{pattern: "/queue", path: "/queue;a=b", resembles: true},
		{pattern: "/queue", path: "/;x/queue", resembles: true},
		{pattern: "/queue", path: "/queue%3Fx", resembles: true},
		{pattern: "/queue", path: "/queue%23x", resembles: true},
		{pattern: "/queue", path: "/queue%20", resembles: true},
		{pattern: "/queue", path: "/queue.", resembles: true},
		{pattern: "/queue", path: "/%2Fqueue", resembles: true},
		{pattern: "/queue", path: "/%2571ueue", resembles: true},
		{pattern: "/queue", path: "/%25252571ueue", resembles: true},
		{pattern: "/queue", path: "/queue%252F", resembles: true},
		{pattern: "/queue", path: "/API/queue/", resembles: true},
		{pattern: "/queue", path: "/api/api/api/queue", resembles: true},
		{pattern: "/api/jobs", path: "/api/api/jobs", resembles: true},
		{pattern: "/api/assets/*", path: "/assets/index.js"},
		{pattern: "/queue", path: "/queues"},
		{pattern: "/queue", path: "/pack/queue"},
		{pattern: "/ws", path: "/pack/ws"},
	}
	for _, c := range cases {
		p, err := read(t, c.path)
		require.NoError(t, err)
		values, ok := ParsePattern(c.pattern).Match(p)
		require.Equal(t, c.ok, ok, "%s %s", c.pattern, c.path)
		require.Equal(t, c.resembles, ParsePattern(c.pattern).Resembles(p.Loose()), "%s %s", c.pattern, c.path)
		if ok {
			require.Equal(t, c.values, values, "%s %s", c.pattern, c.path)
		}
	}
	require.Equal(t, "/a/*", ParsePattern("/a/*").String())
	require.True(t, ParsePattern("/a/*").Equal(ParsePattern("/a/*")))
}

func TestBelow(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/manager": true, "/manager/reboot": true, "/Manager//reboot": true, "/%6danager/x": true, "/manager;x/y": true, "/manager%2Freboot": true, "/api/manager": true, "/Api/api/manager/x": true,
		"/managers": false, "/x/manager": false, "/": false,
	} {
		p, err := read(t, path)
		require.NoError(t, err)
		require.Equal(t, want, p.Below("/other", "/manager"), path)
	}
}

func TestMentions(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/download": true, "/x/download-models": true, "/x/models.Download/y": true, "/api/cancel-model-download-session": true, "/x/%64ownload_2": true, "/x%2Fdownload": true,
		"/downloaded": false, "/x/undownload": false, "/": false,
	} {
		p, err := read(t, path)
		require.NoError(t, err)
		require.Equal(t, want, p.Mentions("other", "download"), path)
	}
}

func TestWithoutKeys(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                                "",
		"x=%2F&y=1;2":                     "x=%2F&y=1;2",
		"token=s&x=1":                     "x=1",
		"x=1&%74oken=s&TOKEN=t&+token=u&": "x=1",
		"tokens=1&x=token":                "tokens=1&x=token",
		"x=1#token=s":                     "x=1",
	} {
		require.Equal(t, want, WithoutKeys(raw, "token"), raw)
	}
}

func FuzzReadPath(f *testing.F) {
	for _, row := range aiohttptest.Rows(f)[:200] {
		f.Add(row.Target)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			return
		}
		p, err := ReadPath(u)
		if err != nil {
			return
		}
		again, err := read(t, p.Escaped())
		require.NoError(t, err)
		require.Equal(t, p, again, "what is sent is what was read")
		set := &url.URL{Scheme: "http", Host: "h"}
		p.Set(set)
		require.Equal(t, "http://h"+p.Escaped(), set.String())
		require.Equal(t, p.Escaped(), set.EscapedPath())
		require.False(t, strings.ContainsAny(p.Escaped(), " \r\n\\#?"))
		_, _ = ParsePattern("/history/*").Match(p)
		_ = ParsePattern("/history/*").Resembles(p.Loose())
	})
}
