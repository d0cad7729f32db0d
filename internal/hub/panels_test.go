package hub_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
	"github.com/comfyhub/comfyhub/internal/stream"
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
		o.HTTPHeader = basic(user, "")
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
	method, header := http.MethodGet, http.Header{}
	if body != "" {
		method = http.MethodPost
	}
	if p.user != "" {
		header = basic(p.user, "")
	}
	return answered(statusAndText(p.b.ask(method, path, body, header)))(p.t, http.StatusOK)
}

func statusAndText(status int, _ http.Header, text string) (int, string) { return status, text }

// hears waits for the node's message and returns the client it was sent to.
func (p *panelist) hears() string {
	p.t.Helper()
	select {
	case text := <-p.got:
		m := decoded[struct {
			Type string
			Data struct{ SID, Text string }
		}](p.t, text)
		require.Equal(p.t, "simulated.panel", m.Type, text)
		require.Equal(p.t, "done", m.Data.Text)
		return m.Data.SID
	case <-time.After(time.Minute):
		require.Fail(p.t, "no message")
		return ""
	}
}

// panelBench starts a hub in front of the ComfyUI at COMFYUI_PANEL_URL, which must have the node
// testdata/panel.py. Without that variable it uses the simulator, which has the node too.
func panelBench(t *testing.T, change ...func(*bench)) *bench {
	t.Helper()
	count, real := 1, os.Getenv("COMFYUI_PANEL_URL")
	if real != "" {
		count = 0
		change = append(change, func(b *bench) { b.settings.Instances = append(b.settings.Instances, real) })
	}
	return newBench(t, count, append(change, func(b *bench) { b.settings.Passthrough = config.PassthroughOn })...)
}

// TestNodeAnswersOneClient: a message that a custom node sends to the client id of
// a call reaches that client and nobody else, wherever the call names the id.
func TestNodeAnswersOneClient(t *testing.T) {
	t.Parallel()
	b := panelBench(t)
	for name, c := range map[string]struct {
		id, path, body string
	}{
		"query":       {id: "0f0e0d0c0b0a09080706050403020100", path: "/simulated/panel?clientId=ID"},
		"JSON body":   {id: "3f0e0d0c0b0a09080706050403020100", path: "/simulated/panel", body: `{"client_id": "ID"}`},
		"path":        {id: "4f0e0d0c0b0a09080706050403020100", path: "/simulated/panel/ID"},
		"a short id":  {id: "me", path: "/simulated/panel?clientId=ID"},
		"a quoted id": {id: `a "client" & more`, path: "/simulated/panel?client_id=a+%22client%22+%26+more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, other := b.panelist(t, "", c.id), b.panelist(t, "", "other "+name)
			known := b.panelist(t, "", "known "+name) // has called the node too
			known.call("/simulated/panel?client_id="+url.QueryEscape(known.id), "")
			require.Equal(t, known.id, known.hears())
			for range 3 {
				answer := p.call(strings.ReplaceAll(c.path, "ID", c.id), strings.ReplaceAll(c.body, "ID", c.id))
				said := decoded[struct{ SID string }](t, answer)
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

// talkative is an instance that sends a TEXT frame to every socket before each
// `executing` message with a node, as API nodes do.
type talkative struct {
	*instance
	front *httptest.Server
}

func newTalkative(t *testing.T) *talkative {
	t.Helper()
	f := &talkative{instance: newInstance(t, sim.Config{})}
	f.front = simtest.Front(t, f.url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
		if r.URL.Path != "/ws" {
			rest.ServeHTTP(w, r)
			return
		}
		f.socket(w, r)
	})
	return f
}

// socket joins a hub's socket with a socket of the instance.
func (f *talkative) socket(w http.ResponseWriter, r *http.Request) {
	near, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer near.CloseNow()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	far, _, err := websocket.Dial(ctx, f.url()+r.URL.RequestURI(), nil)
	if err != nil {
		return
	}
	defer far.CloseNow()
	near.SetReadLimit(-1)
	far.SetReadLimit(-1)
	go func() {
		defer cancel()
		for {
			kind, data, err := near.Read(ctx)
			if err != nil || far.Write(ctx, kind, data) != nil {
				return
			}
		}
	}()
	for {
		kind, data, err := far.Read(ctx)
		if err != nil {
			return
		}
		if bytes.Contains(data, []byte(`"executing"`)) && !bytes.Contains(data, []byte(`"node": null`)) {
			if near.Write(ctx, websocket.MessageBinary, textFrame()) != nil {
				return
			}
		}
		if near.Write(ctx, kind, data) != nil {
			return
		}
	}
}

// textFrame is a binary frame of event type 3.
func textFrame() []byte {
	frame := binary.BigEndian.AppendUint32(nil, 3)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len("2")))
	return append(frame, "2the clouds are counted: ☁"...)
}

// TEXT frames name no prompt, and a server sends them to everybody. Behind the hub
// they reach only the client whose prompt runs.
func TestTextFrames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newTalkative(t)
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{f.front.URL} })
		others := b.dial("bob")
		socket := b.dial("ann")
		for n := range 3 {
			id := b.submit(picture(n+1), "ann")
			got, all := socket.sequence()
			require.Equal(t, id, got)
			texts := 0
			for i, h := range all {
				if h.binary != nil {
					require.Equal(t, textFrame(), h.binary)
					require.Equal(t, "executing", all[i+1].Type, "in its place")
					texts++
				}
			}
			require.Equal(t, 2, texts, "one for each node that ran")
		}
		id := b.submit(picture(9), "bob")
		first := others.any()
		for first.Type == "status" {
			first = others.any()
		}
		require.Equal(t, "execution_start", first.Type, fmt.Sprint("nothing came before its own: ", first.raw))
		require.Equal(t, id, first.Data.PromptID)
	})
}

// The log panel shows the lines of all servers with their names.
func TestLogsOfAllInstances(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one, two := newPack(t, "one", sim.Config{}), newPack(t, "two", sim.Config{})
		b := packed(t, one, two)
		var names []string
		for _, i := range b.hub.Fleet.Instances() {
			names = append(names, i.Name)
		}
		raw := decoded[struct {
			Entries []struct{ T, M string }
			Size    struct{ Cols, Rows int }
		}](t, b.text("/internal/logs/raw"))
		require.NotZero(t, raw.Size.Cols)
		text := decoded[string](t, b.text("/internal/logs"))
		shown := ""
		for _, e := range raw.Entries {
			require.NotEmpty(t, e.T)
			shown += e.M
		}
		for _, name := range names {
			require.Contains(t, shown, "["+name+"] ")
			require.Contains(t, text, " - ["+name+"] ")
		}

		reader := b.dial("reader")
		key := stream.Key{Tenant: job.DefaultTenant, Client: "reader"}
		eventually(t, func() bool { return b.hub.Streams.Connected(key) }, time.Minute, time.Millisecond)
		b.play([]exchange{{method: "PATCH", path: "/internal/logs/subscribe", body: `{"clientId": "reader", "enabled": true}`, status: 200}})
		for _, p := range []*pack{one, two} {
			require.Contains(t, p.last(), `"enabled": true`, "each instance is asked")
		}
		line := []byte(`{"type": "logs", "data": {"entries": [{"t": "1", "m": "hello"}], "size": null}}`)
		b.hub.Logs.Pass(names[0], line)
		require.Contains(t, reader.next().raw, "["+names[0]+"] hello")
	})
}
