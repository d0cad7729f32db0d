package webchat

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestFilesFrom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from    string
		in, out []string
	}{
		{
			from: "http://127.0.0.1:36097",
			in:   []string{"http://127.0.0.1:36097", "http://127.0.0.1:36097/", "http://127.0.0.1:36097/a/b.png?x=1", "HTTP://127.0.0.1:36097/a"},
			out: []string{
				"http://127.0.0.1:36097@evil.example/a", "http://127.0.0.1:36097@evil.example", "http://127.0.0.1:360971/a",
				"http://127.0.0.1:36097.evil.example/a", "http://127.0.0.1:36097%2f@evil.example/", "http://u:p@127.0.0.1:36097/a",
				"http://@127.0.0.1:36097/a", "http://127.0.0.1/a", "https://127.0.0.1:36097/a", "http://localhost:36097/a", "http://127.1:36097/a",
				"http://2130706433:36097/a", "http:127.0.0.1:36097/a", "//127.0.0.1:36097/a", "/a", "", "file:///etc/passwd",
				"http://127.0.0.1:36097\\@evil.example/a", "http://127.0.0.1:36097\t/a", " http://127.0.0.1:36097/a", "http://127.0.0.1:36097/a\r\nHost: x",
				"http://127.0.0.1:36097/" + strings.Repeat("a", maxURL),
			},
		},
		{
			from: "https://Chat.Example./uploads/",
			in: []string{
				"https://chat.example/uploads/a.png", "https://CHAT.example:443/uploads/a.png", "https://chat.example./uploads/a.png",
				"https://chat.example/uploads/a%20b.png", "https://chat.example/%75ploads/a.png", "https://chat.example/uploads/100%25.png",
				"https://chat.example/uploads/a.png?sig=%2F..%2F#x", "https://chat.example/uploads//a.png", "https://chat.example/uploads/..a.png",
			},
			out: []string{
				"https://chat.example/uploads-of-others/a.png", "https://chat.example/uploadsa.png", "https://chat.example/Uploads/a.png",
				"https://chat.example/uploads/../a.png", "https://chat.example/uploads/%2e%2e/a.png", "https://chat.example/uploads/.%2E/a",
				"https://chat.example/uploads/%252e%252e/a", "https://chat.example/uploads/..%2fa", "https://chat.example/uploads/a%2f..%2fb",
				"https://chat.example/uploads/%5c..%5ca", "https://chat.example/uploads/..;/a", "https://chat.example/uploads/./a",
				"https://chat.example/uploads/a%00.png", "https://chat.example/uploads/a%0d%0a", "https://chat.example//uploads/a",
				"https://chat.example/", "https://chat.example", "https://chat.example:8443/uploads/a", "https://chat.example:80/uploads/a",
				"https://chat.example.evil.example/uploads/a", "https://chat.example../uploads/a", "https://chat.example%00/uploads/a",
				"https://evil.example/https://chat.example/uploads/a", "https://evil.example?https://chat.example/uploads/",
				"https://evil.example#https://chat.example/uploads/", "https://chat.example/uploads/%zz", "http://chat.example/uploads/a",
			},
		},
		{
			from: "https://bücher.example/a",
			in:   []string{"https://bücher.example/a/b", "https://xn--bcher-kva.example/a/b", "https://BÜCHER.example/a", "https://b%C3%BCcher.example/a/b"},
			out:  []string{"https://bucher.example/a/b", "https://xn--bcher-kvb.example/a/b"},
		},
		{
			from: "http://[::1]:8080/a",
			in:   []string{"http://[::1]:8080/a/b"},
			out:  []string{"http://[::1%25lo]:8080/a/b", "http://[::1]/a/b", "http://[::2]:8080/a/b"},
		},
	} {
		p, err := parsePlace(c.from)
		require.NoError(t, err, c.from)
		for _, text := range c.in {
			_, ok := p.within(text)
			require.True(t, ok, "%s in %s", text, c.from)
		}
		for _, text := range c.out {
			u, ok := p.within(text)
			require.False(t, ok, "%q in %s: %v", text, c.from, u)
		}
	}
	for _, from := range []string{
		"chat.example", "/uploads", "ftp://chat.example/", "https://", "https://u:p@chat.example/", "https://chat.example/?a=", "https://chat.example/?",
		"https://chat.example/#x", "https://chat.example/../", "https://chat.example/a b", "https:///a", "https://:443/a",
	} {
		_, err := parsePlace(from)
		require.ErrorIs(t, err, errPlace, from)
		_, err = New(Options{Secret: strings.Repeat("s", 16), Callback: "http://127.0.0.1/", FilesFrom: from})
		require.ErrorIs(t, err, errPlace, from)
	}
}

// What was compared is what is fetched: the other server never hears of it.
func TestOpenStaysInFilesFrom(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the bridge fetched %s", r.URL)
	}))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/uploads/away":
			http.Redirect(w, r, other.URL+"/secret", http.StatusFound)
		case "/uploads/above":
			http.Redirect(w, r, "/secret", http.StatusFound)
		case "/uploads/near":
			http.Redirect(w, r, "/uploads/a.png", http.StatusFound)
		case "/uploads/loop":
			http.Redirect(w, r, "/uploads/loop", http.StatusFound)
		case "/uploads/a.png":
			fmt.Fprint(w, "picture")
		default:
			t.Errorf("the bridge fetched %s", r.URL)
		}
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	w := must.Get(New(Options{Secret: strings.Repeat("s", 16), Callback: server.URL, FilesFrom: server.URL + "/uploads"}))(t)
	defer w.Close()
	open := func(url string) (string, error) {
		body, err := w.Open(context.Background(), platform.File{ID: url})
		if err != nil {
			return "", err
		}
		defer body.Close()
		data, err := io.ReadAll(body)
		return string(data), err
	}
	for _, name := range []string{"a.png", "near"} {
		require.Equal(t, "picture", must.Get(open(server.URL+"/uploads/"+name))(t))
	}
	for _, url := range []string{
		server.URL + "/uploads/away", server.URL + "/uploads/above", server.URL + "/uploads/loop", server.URL + "/uploads/../secret",
		"http://" + host + "@" + strings.TrimPrefix(other.URL, "http://") + "/uploads/a.png", server.URL + "/uploadsecret",
	} {
		_, err := open(url)
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), host, "errors are logged, and a URL may hold a secret")
	}
	none := must.Get(New(Options{Secret: strings.Repeat("s", 16), Callback: server.URL}))(t)
	defer none.Close()
	_, err := none.Open(context.Background(), platform.File{ID: server.URL + "/uploads/a.png"})
	require.ErrorIs(t, err, platform.ErrRefused, "without files_from nobody can send files")
}

func TestCallbackIsAnAddress(t *testing.T) {
	t.Parallel()
	for _, callback := range []string{"http://", "https:///x", "ftp://chat.example", "chat.example", "http:chat.example", "http://chat.example:x/"} {
		_, err := New(Options{Secret: strings.Repeat("s", 16), Callback: callback})
		require.Error(t, err, callback)
	}
}

func FuzzFilesFrom(f *testing.F) {
	for _, s := range []string{"http://a.example@b/", "https://a.example/up/../x", "https://a.example/up/%2e%2e", "https://A.example.:443/up/x?y#z"} {
		f.Add(s)
	}
	p := must.Get(parsePlace("https://a.example/up"))(f)
	f.Fuzz(func(t *testing.T, text string) {
		u, ok := p.within(text)
		if !ok {
			return
		}
		require.Equal(t, "https", u.Scheme)
		require.Equal(t, "a.example:443", u.Host)
		require.Nil(t, u.User)
		clean := u.JoinPath().Path // what a server makes of it
		require.True(t, clean == "/up" || strings.HasPrefix(clean, "/up/"), "%q is %q", text, clean)
	})
}
