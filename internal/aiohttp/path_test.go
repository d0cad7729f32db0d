package aiohttp

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp/aiohttptest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func read(t *testing.T, raw string) (Path, error) {
	t.Helper()
	u, err := url.ParseRequestURI(raw)
	require.NoError(t, err, raw)
	return ReadPath(u)
}

func TestReadPath(t *testing.T) {
	t.Parallel()
	require.Equal(t, "/queue", must.Get(read(t, "http://h/%71ueue?x"))(t).String())
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
	p := must.Get(read(t, "/api/a%2Fb%25%20c;x=1/%C3%BC"))(t)
	require.Equal(t, "/api/a/b% c;x=1/ü", p.Decoded())
	require.Equal(t, "/api/a%2Fb%25%20c;x=1/%C3%BC", p.Escaped())
	require.Equal(t, "/a%2Fb%25 c;x=1/ü", p.Bare().String())
	require.Equal(t, "/", MustPath("/api/").Bare().String())
	require.Equal(t, "/api", MustPath("/api").Bare().String())
	require.Equal(t, "/apix", MustPath("/apix").Bare().String())
	require.Panics(t, func() { MustPath("/a/..") })
	require.False(t, p.Climbs())
	climbs := must.Get(read(t, "/pack/..%2Fx"))(t)
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
		p := must.Get(read(t, c.path))(t)
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
		p := must.Get(read(t, path))(t)
		require.Equal(t, want, p.Below("/other", "/manager"), path)
	}
}

func TestMentions(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/download": true, "/x/download-models": true, "/x/models.Download/y": true, "/api/cancel-model-download-session": true, "/x/%64ownload_2": true, "/x%2Fdownload": true,
		"/downloaded": false, "/x/undownload": false, "/": false,
	} {
		p := must.Get(read(t, path))(t)
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
		again := must.Get(read(t, p.Escaped()))(t)
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

// target is the URL of a request as net/http's server would hand it over, nil where it would
// answer 400 itself.
func target(r aiohttptest.Row) *url.URL {
	u, err := url.ParseRequestURI(r.Target)
	if err != nil {
		return nil
	}
	return u
}

func TestReadPathAsAiohttpDoes(t *testing.T) {
	t.Parallel()
	rows := aiohttptest.Rows(t)
	read := map[string]string{} // by what was sent
	for _, row := range rows {
		read[row.Target] = row.Path
	}
	accepted := 0
	for _, row := range rows {
		u := target(row)
		if u == nil {
			continue
		}
		p, err := ReadPath(u)
		if err != nil {
			require.ErrorIs(t, err, ErrRefused)
			continue
		}
		accepted++
		if row.Status != 400 { // raw bytes that its parser does not take
			require.Equal(t, row.Path, p.String(), row.Target)
		}
		again, known := read[p.Escaped()]
		require.True(t, known, "not recorded: %s", p.Escaped())
		require.Equal(t, p.String(), again, "what is sent for %s must be read as it was here", row.Target)
	}
	require.Greater(t, accepted, 1000)
}

func TestParseQueryAsAiohttpDoes(t *testing.T) {
	t.Parallel()
	met := 0
	for _, row := range aiohttptest.Rows(t) {
		u := target(row)
		if u == nil || row.Status != 200 || row.Route == "" {
			continue
		}
		want := url.Values{}
		for _, pair := range row.Query {
			want.Add(pair[0], pair[1])
			met++
		}
		require.Equal(t, want, ParseQuery(u.RawQuery), row.Target)
	}
	require.Greater(t, met, 50)
}
