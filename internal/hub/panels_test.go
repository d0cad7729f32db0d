package hub

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// panelist is a client of a custom node that answers over the client's socket.
type panelist struct {
	t    *testing.T
	b    *bench
	user string
	id   string
	conn *websocket.Conn
	got  chan string
}

// panelist opens a client's socket. An empty user has no login.
func (b *bench) panelist(t *testing.T, user, id string) *panelist {
	t.Helper()
	p := &panelist{t: t, b: b, user: user, id: id, got: make(chan string, 1000)}
	o := &websocket.DialOptions{HTTPHeader: http.Header{}}
	if user != "" {
		r := http.Request{Header: o.HTTPHeader}
		r.SetBasicAuth(user, "")
	}
	conn, _, err := websocket.Dial(t.Context(), b.web.URL+"/ws?clientId="+url.QueryEscape(id), o)
	require.NoError(t, err)
	p.conn = conn
	read := make(chan struct{})
	go func() {
		defer close(read)
		for {
			_, data, err := conn.Read(t.Context())
			if err != nil {
				return
			}
			if !strings.Contains(string(data), `"type": "status"`) {
				p.got <- string(data)
			}
		}
	}()
	t.Cleanup(func() { conn.CloseNow(); <-read })
	return p
}

// call calls the node and returns its answer.
func (p *panelist) call(path, body string) string {
	p.t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.b.web.URL+path, strings.NewReader(body))
	require.NoError(p.t, err)
	if p.user != "" {
		r.SetBasicAuth(p.user, "")
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusOK, resp.StatusCode, string(answer))
	return string(answer)
}

// hears waits for the node's message and returns the client it was sent to.
func (p *panelist) hears() string {
	p.t.Helper()
	select {
	case text := <-p.got:
		var m struct {
			Type string
			Data struct{ SID, Text string }
		}
		require.NoError(p.t, json.Unmarshal([]byte(text), &m), text)
		require.Equal(p.t, "simulated.panel", m.Type, text)
		require.Equal(p.t, "done", m.Data.Text)
		return m.Data.SID
	case <-time.After(time.Minute):
		require.Fail(p.t, "no message")
		return ""
	}
}

// panelBench starts a hub in front of the ComfyUI at COMFYUI_PANEL_URL, which must
// have the node testdata/panel.py. Without that variable it uses the simulator,
// which has the node too.
func panelBench(t *testing.T, change ...func(*bench)) *bench {
	t.Helper()
	count, real := 1, os.Getenv("COMFYUI_PANEL_URL")
	if real != "" {
		count = 0
		change = append(change, func(b *bench) { b.settings.Instances = append(b.settings.Instances, real) })
	}
	return newBench(t, count, append(change, func(b *bench) { b.settings.Passthrough = PassthroughOn })...)
}

// TestNodeAnswersOneClient: a message that a custom node sends to the client id of
// a call reaches that client and nobody else, wherever the call names the id.
func TestNodeAnswersOneClient(t *testing.T) {
	t.Parallel()
	b := panelBench(t)
	for name, c := range map[string]struct {
		id, path, body string
	}{
		"query":              {id: "0f0e0d0c0b0a09080706050403020100", path: "/simulated/panel?clientId=ID"},
		"query, snake case":  {id: "1f0e0d0c0b0a09080706050403020100", path: "/simulated/panel?client_id=ID"},
		"below /api":         {id: "2f0e0d0c0b0a09080706050403020100", path: "/api/simulated/panel?clientId=ID"},
		"JSON body":          {id: "3f0e0d0c0b0a09080706050403020100", path: "/simulated/panel", body: `{"client_id": "ID"}`},
		"path":               {id: "4f0e0d0c0b0a09080706050403020100", path: "/simulated/panel/ID"},
		"a short id":         {id: "me", path: "/simulated/panel?clientId=ID"},
		"a short id in JSON": {id: "it", path: "/simulated/panel?text=it", body: `{"text": "it", "client_id" : "ID"}`},
		"a quoted id":        {id: `a "client" & more`, path: "/simulated/panel?client_id=a+%22client%22+%26+more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, other := b.panelist(t, "", c.id), b.panelist(t, "", "other "+name)
			known := b.panelist(t, "", "known "+name) // has called the node too
			known.call("/simulated/panel?client_id="+url.QueryEscape(known.id), "")
			require.Equal(t, known.id, known.hears())
			for range 3 {
				answer := p.call(strings.ReplaceAll(c.path, "ID", c.id), strings.ReplaceAll(c.body, "ID", c.id))
				var said struct{ SID string }
				require.NoError(t, json.Unmarshal([]byte(answer), &said), answer)
				require.Equal(t, c.id, said.SID, "under its own name")
				require.Equal(t, c.id, p.hears())
			}
			other.call("/simulated/panel?client_id="+url.QueryEscape(other.id), "") // marks a point in time
			require.Equal(t, other.id, other.hears())
			require.Empty(t, p.got, "no doubles, and no progress of prompts that the client has not posted")
			require.Empty(t, known.got)
		})
	}
}

// TestNodeAnswersOneTenant: a caller that names the client id of another tenant
// does not get that tenant's messages, and cannot cause messages to it.
func TestNodeAnswersOneTenant(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := panelBench(t)
		const id = "5f0e0d0c0b0a09080706050403020100"
		ann, bob := b.panelist(t, "ann", id), b.panelist(t, "bob", "bob's own")
		path := "/simulated/panel?client_id=" + id

		ann.call(path, "")
		require.Equal(t, id, ann.hears())
		bob.call(path, "") // has no such client
		bob.call("/simulated/panel", `{"client_id": "`+id+`"}`)
		bob.call("/simulated/panel/"+id, "")

		thief := b.panelist(t, "bob", id) // now has one
		ann.call(path, "")
		require.Equal(t, id, ann.hears())
		thief.call(path, "")
		require.Equal(t, id, thief.hears())
		b.panelist(t, "", id).call(path, "") // nobody's login

		for _, p := range []*panelist{ann, bob, thief} { // marks a point in time
			p.call("/simulated/panel?client_id="+url.QueryEscape(p.id), "")
			require.Equal(t, p.id, p.hears())
		}
		for name, p := range map[string]*panelist{"ann": ann, "bob": bob, "thief": thief} {
			require.Empty(t, p.got, name)
		}
	})
}

// TestNodeTellsEverybody: a message that a node sends to all sockets is for all
// users of the instance, so the hub cannot say which of them it is for.
func TestNodeTellsEverybody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := panelBench(t)
		ann, bob := b.panelist(t, "ann", "6f0e0d0c0b0a09080706050403020100"), b.panelist(t, "bob", "7f0e0d0c0b0a09080706050403020100")
		for range 20 {
			ann.call("/simulated/panel?client_id="+ann.id+"&all=1&after=0", "")
			bob.call("/simulated/panel?client_id="+bob.id+"&after=0", "")
			require.Equal(t, bob.id, bob.hears())
		}
		ann.call("/simulated/panel?clientId="+ann.id, "")
		require.Equal(t, ann.id, ann.hears())
		require.Empty(t, ann.got)
		require.Empty(t, bob.got)
	})
}
