package hub_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
)

const program = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"

// visitor is a caller at 127.0.0.1. All visitors use the same program.
type visitor struct {
	b    *bench
	http *http.Client
	user string
	// page makes the visitor a page in a browser that keeps no cookies.
	page bool
}

// browser returns a visitor with a cookie jar that has loaded the page.
func (b *bench) browser() *visitor {
	b.t.Helper()
	jar := must(cookiejar.New(nil))(b.t)
	v := &visitor{b: b, http: &http.Client{Jar: jar}}
	v.sends("GET", "/", "")
	require.NotEmpty(b.t, v.cookie(), "the page brings the cookie")
	return v
}

// script returns a visitor without a cookie jar.
func (b *bench) script() *visitor { return &visitor{b: b, http: &http.Client{}} }

func (v *visitor) cookie() string {
	at := must(url.Parse(v.b.web.URL))(v.b.t)
	for _, c := range v.http.Jar.Cookies(at) {
		if c.Name == api.CookieName {
			return c.Value
		}
	}
	return ""
}

func (v *visitor) do(method, path, body string) *http.Response {
	v.b.t.Helper()
	r := must(http.NewRequest(method, v.b.web.URL+path, strings.NewReader(body)))(v.b.t)
	r.Header.Set("User-Agent", program)
	if v.http.Jar != nil && path == "/" {
		r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	}
	if method == http.MethodPost && (v.page || v.http.Jar != nil) {
		r.Header.Set("Origin", v.b.web.URL)
	}
	if v.user != "" {
		r.SetBasicAuth(v.user, "")
	}
	resp, err := v.http.Do(r)
	require.NoError(v.b.t, err)
	return resp
}

func (v *visitor) send(method, path, body string) (int, []byte) {
	v.b.t.Helper()
	return read(v.b.t, v.do(method, path, body))
}

// submit posts a prompt. client is its client id, or "" for none.
func (v *visitor) submit(graph, client string) string {
	v.b.t.Helper()
	id := ""
	if client != "" {
		id = fmt.Sprintf(`, "client_id": %q`, client)
	}
	answer := v.sends("POST", "/api/prompt", `{"prompt": `+graph+id+`}`)
	return idOf(v.b.t, answer)
}

func (v *visitor) posts(path, body string) {
	v.b.t.Helper()
	v.sends("POST", path, body)
}

// sends is send for requests that must succeed.
func (v *visitor) sends(method, path, body string) []byte {
	v.b.t.Helper()
	status, answer := v.send(method, path, body)
	require.Equal(v.b.t, http.StatusOK, status, "%s %s: %s", method, path, answer)
	return answer
}

// connect opens a socket the way a browser does.
func (v *visitor) connect(id string) *client {
	v.b.t.Helper()
	header := http.Header{"User-Agent": {program}, "Origin": {v.b.web.URL}}
	if v.user != "" {
		maps.Copy(header, basic(v.user, ""))
	}
	conn, resp, err := websocket.Dial(v.b.t.Context(), v.b.web.URL+"/ws?clientId="+id, &websocket.DialOptions{
		HTTPClient: v.http, HTTPHeader: header,
	})
	require.NoError(v.b.t, err)
	v.b.t.Cleanup(func() { conn.CloseNow() })
	if at, err := url.Parse(v.b.web.URL); err == nil && v.http.Jar != nil {
		v.http.Jar.SetCookies(at, resp.Cookies())
	}
	conn.SetReadLimit(-1)
	_, _, err = conn.Read(v.b.t.Context())
	require.NoError(v.b.t, err)
	return &client{t: v.b.t, conn: conn}
}

// count returns how many of the visitor's prompts are not done. A bare clear or
// interrupt would affect these.
func (v *visitor) count() int {
	v.b.t.Helper()
	_, body := v.send("GET", "/prompt", "")
	answer := decoded[struct {
		Info struct {
			Remaining int `json:"queue_remaining"`
		} `json:"exec_info"`
	}](v.b.t, body)
	return answer.Info.Remaining
}

// states returns the states of the jobs of the visitor's tenant.
func (v *visitor) states() map[string]string {
	v.b.t.Helper()
	body := v.sends("GET", "/hub/jobs", "")
	jobs := decoded[[]struct{ ID, Status string }](v.b.t, body)
	states := map[string]string{}
	for _, j := range jobs {
		states[j.ID] = j.Status
	}
	return states
}

// submits posts a prompt and waits until it has a state.
func (v *visitor) submits(graph, client, state string) string {
	v.b.t.Helper()
	id := v.submit(graph, client)
	v.awaits(id, state)
	return id
}

func (v *visitor) awaits(id, state string) {
	v.b.t.Helper()
	eventually(v.b.t, func() bool { return v.states()[id] == state }, time.Minute, 5*time.Millisecond, "%s: %s", id, state)
}

// withPage returns a bench that has a web interface.
func withPage(t *testing.T, count int) *bench {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "index.html"), []byte("<!doctype html>"), 0o600))
	return newBench(t, count, func(b *bench) { b.settings.Frontend = folder })
}

// people are pairs of callers that differ only in what the case names.
var people = map[string]func(b *bench) (one, two *visitor, body func(client, rest string) string){
	"by the browser's cookie": func(b *bench) (one, two *visitor, body func(client, rest string) string) {
		return b.browser(), b.browser(), func(_, rest string) string { return "{" + rest + "}" }
	},
	"by the client id in the body": func(b *bench) (one, two *visitor, body func(client, rest string) string) {
		return b.script(), b.script(), func(client, rest string) string {
			return strings.TrimSuffix(fmt.Sprintf(`{"client_id": %q, %s`, client, rest), ", ") + "}"
		}
	},
	"by the cookie against none": func(b *bench) (one, two *visitor, body func(client, rest string) string) {
		return b.browser(), b.script(), func(_, rest string) string { return "{" + rest + "}" }
	},
}

// Two people use the same program behind one address, and neither is logged in.
// What one clears or interrupts never belongs to the other.
func TestTwoAtOneAddress(t *testing.T) {
	t.Parallel()
	for name, meet := range people {
		runInBubble(t, name, func(t *testing.T) {
			b := withPage(t, 2)
			ann, bob, body := meet(b)
			ended, endedToo := ann.submits(work(1, 1, "none"), "ann", "done"), bob.submits(work(1, 2, "none"), "bob", "done")
			running, runningToo := ann.submits(endless(3), "ann", "running"), bob.submits(endless(4), "bob", "running")
			waiting, waitingToo := ann.submit(endless(5), "ann"), bob.submit(endless(6), "bob")

			bob.posts("/queue", body("bob", `"clear": true`))
			bob.posts("/history", body("bob", `"clear": true`))
			bob.posts("/api/interrupt", body("bob", ""))
			ann.awaits(runningToo, "cancelled")
			bob.posts("/interrupt", body("bob", "")) // none of bob's prompts is left
			bob.posts("/free", body("bob", `"unload_models": true`))

			states := ann.states()
			require.Equal(t, "running", states[running], "ann's running prompt")
			require.Contains(t, []string{"queued", "running"}, states[waiting], "ann's waiting prompt")
			require.NotContains(t, states, waitingToo, "bob's waiting prompt")
			_, shown := b.history(ended)
			require.True(t, shown, "ann's history")
			_, shown = b.history(endedToo)
			require.False(t, shown, "bob's history")

			ann.posts("/queue", body("ann", `"clear": true`))
			ann.posts("/interrupt", body("ann", ""))
			ann.awaits(running, "cancelled")
		})
	}
}

// A hub that restarts knows nobody. The web interface's socket comes back with its
// client id and cookie, and the browser owns its earlier prompts again.
func TestBrowserAfterARestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := withPage(t, 1)
		ann, bob := b.browser(), b.browser()
		running := ann.submits(endless(1), "ann", "running")
		theirs := bob.submit(endless(2), "bob")
		b.stop()
		b.start()
		b.connected(1)
		ann.connect("ann")
		bob.connect("bob")
		ann.awaits(running, "running")
		ann.posts("/interrupt", "")
		ann.posts("/queue", `{"clear": true}`)
		ann.awaits(running, "cancelled")
		require.Contains(t, []string{"queued", "running"}, ann.states()[theirs])
		bob.awaits(theirs, "running")
		bob.posts("/queue", `{"clear": true}`)
		bob.posts("/interrupt", "")
		bob.awaits(theirs, "cancelled")
	})
}

// A tab that was open before the cookie existed gets the cookie with its socket.
func TestOldTab(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := withPage(t, 1)
		jar := must(cookiejar.New(nil))(t)
		ann := &visitor{b: b, http: &http.Client{Jar: jar}}
		running := ann.submits(endless(1), "ann", "running") // known by its address for now
		ann.connect("ann")
		require.NotEmpty(t, ann.cookie())
		require.Equal(t, 0, b.script().count(), "the address means others now")
		require.Equal(t, 1, ann.count())
		ann.posts("/interrupt", "")
		ann.awaits(running, "cancelled")
	})
}

// Behind an undeclared proxy, everybody has the same address. Then only client ids
// and cookies count, and the log says so once.
func TestUndeclaredProxy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		heard := new(logtest.Log)
		b := newBench(t, 1, func(b *bench) { b.log, b.proxied = heard, true })
		ann, bob := b.script(), b.script()
		running := ann.submits(endless(1), "ann", "running")
		nameless := ann.submit(endless(2), "")
		for range 2 {
			bob.posts("/interrupt", "")
			bob.posts("/queue", `{"clear": true}`)
			bob.posts("/queue", fmt.Sprintf(`{"delete": [%q]}`, "no such id"))
		}
		require.Equal(t, "running", ann.states()[running])
		require.Equal(t, "queued", ann.states()[nameless])
		require.Equal(t, 1, strings.Count(heard.String(), "requests come through a proxy"))
		ann.posts("/queue", fmt.Sprintf(`{"delete": [%q]}`, nameless))
		ann.posts("/interrupt", `{"client_id": "ann"}`)
		ann.awaits(running, "cancelled")
	})
}
