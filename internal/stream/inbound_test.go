package stream

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// What a client has not finished is counted while it is kept; little of it is kept, and not for
// ever.
func TestUnfinishedMessages(t *testing.T) {
	b := budget.New()
	b.Resize(budget.Memory, 1<<20, 1, nil)
	bubble(t, Options{Budget: b, KeepAlive: time.Hour}, func(t *testing.T, r *rig) {
		unfinished := func(first string) *peer {
			p := r.open("/ws")
			if first != "" {
				p.say(websocket.MessageText, first)
			}
			p.settled()
			w := must(p.conn.Writer(t.Context(), websocket.MessageText))
			must(w.Write([]byte(strings.Repeat("x", 8<<10))))
			synctest.Wait()
			return p
		}
		p := unfinished("")
		used := b.Used(budget.Memory)
		require.Greater(t, used, int64(8<<10))
		settled := unfinished(announcement)
		require.Equal(t, used, b.Used(budget.Memory), "nothing is kept of what does not count")
		time.Sleep(messageTime)
		synctest.Wait()
		require.Equal(t, websocket.StatusPolicyViolation, p.closeCode())
		require.Equal(t, websocket.StatusPolicyViolation, settled.closeCode())
		synctest.Wait()
		require.Zero(t, b.Used(budget.Memory))
	})
}

// Messages that nobody needs are skipped: clients and custom nodes may send them.
func TestMessagesThatDoNotCount(t *testing.T) {
	features := func() json.RawMessage { return json.RawMessage(`{"hub":true}`) }
	bubble(t, Options{Features: features}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		p.say(websocket.MessageText, strings.Repeat("x", 1<<20))
		p.say(websocket.MessageBinary, strings.Repeat("x", 1<<20))
		p.say(websocket.MessageText, announcement)
		require.Equal(t, words(string(featuresMessage(features()))), p.settled())
		p.say(websocket.MessageText, strings.Repeat("x", 1<<20))
		p.say(websocket.MessageText, announcement)
		require.Empty(t, p.settled())
		require.NoError(t, p.conn.Ping(t.Context()))
	})
}

func TestMessagesWithoutRoom(t *testing.T) {
	bubble(t, Options{Budget: budget.New()}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		p.say(websocket.MessageText, announcement)
		require.Empty(t, p.settled(), "there is no room for it")
		require.NoError(t, p.conn.Ping(t.Context()), "and the socket lives on")
	})
}

const announcement = `{"type":"feature_flags","data":{"supports_preview_metadata":true}}`

func TestFlags(t *testing.T) {
	type row struct {
		said     []string
		answered int
		metadata bool
	}
	beside.Cases(t, map[string]row{
		"first":                           {[]string{announcement}, 1, true},
		"second":                          {[]string{`{"type":"hello"}`, announcement}, 0, false},
		"twice":                           {[]string{`{"type":"feature_flags","data":{}}`, announcement}, 1, false},
		"after what is not a JSON object": {[]string{"not json", "[]", `"x"`, "7", "NaN", "null", "", announcement}, 1, true},
		"not true":                        {[]string{`{"type":"feature_flags","data":{"supports_preview_metadata":"true"}}`}, 1, false},
		"data is a list":                  {[]string{`{"type":"feature_flags","data":[1]}`}, 1, false},
		"no data":                         {[]string{`{"type":"feature_flags"}`}, 1, false},
		"the flag is a list":              {[]string{`{"type":"feature_flags","data":{"supports_preview_metadata":[1]}}`}, 1, false},
		"nothing":                         {nil, 0, false},
	}, func(t *testing.T, c row) {
		var g flags
		answered, metadata := 0, false
		for _, message := range c.said {
			a, m := g.read([]byte(message))
			if a {
				answered++
			}
			metadata = metadata || m
		}
		require.Equal(t, c.answered, answered)
		require.Equal(t, c.metadata, metadata)
	})
}

func FuzzFlags(f *testing.F) {
	f.Add([]byte(announcement))
	f.Add([]byte(`{"type":"feature_flags","data":{"supports_preview_metadata":NaN}}`))
	f.Add([]byte("[]"))
	f.Fuzz(func(t *testing.T, message []byte) {
		var g flags
		announced, metadata := g.read(message)
		require.False(t, metadata && !announced)
		require.False(t, announced && !g.settled)
		if g.settled {
			again, _ := g.read([]byte(announcement))
			require.False(t, again, "only the first counts")
		}
	})
}

// maskedText is a text frame as a client sends it, with a mask of zeros.
func maskedText(text string) []byte {
	frame := binary.BigEndian.AppendUint16([]byte{0x81, 0x80 | 126}, uint16(len(text)))
	return append(append(frame, 0, 0, 0, 0), text...)
}

// Some clients send their first message without waiting for the handshake's answer.
func TestMessageBehindTheHandshake(t *testing.T) {
	beside.Cases(t, map[string]int{"short": 0, "longer than the buffer": 2 * readBuffer}, func(t *testing.T, spaces int) {
		r := loopback(t, Options{Features: func() json.RawMessage { return json.RawMessage(`{"hub":true}`) }})
		conn := must(r.dialer(t.Context(), "tcp", r.addr))
		defer func() { require.NoError(t, conn.Close()) }()
		request := "GET /ws?clientId=me HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
		flags := `{"type":"feature_flags","data":{}` + strings.Repeat(" ", spaces) + `}`
		must(conn.Write(append([]byte(request), maskedText(flags)...)))
		requireText(t, conn, `"hub":true`)
	})
}

// requireText reads a connection until the text arrives.
func requireText(t *testing.T, conn net.Conn, text string) {
	answers := bufio.NewReader(conn)
	response := must(http.ReadResponse(answers, nil))
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	var seen []byte
	for !strings.Contains(string(seen), text) {
		b, err := answers.ReadByte()
		require.NoError(t, err, "%q", seen)
		seen = append(seen, b)
	}
}

// A socket outlives the request that opened it.
func TestServeReturns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		synctest.Wait()
		require.Equal(t, []error{nil}, r.errs)
		a := r.run("me", "a")
		a.End()
		synctest.Wait()
		require.NotEmpty(t, p.settled())
	})
}

// wrapper is a response like Caddy's: it would count what goes over a connection.
type wrapper struct{ http.ResponseWriter }

func (r wrapper) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r wrapper) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, errors.New("the recorder has the connection")
}

// A socket outlives its request, so nothing that belongs to the request may see its bytes.
func TestLeanWriterTakesTheServersConnection(t *testing.T) {
	t.Parallel()
	taken := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffers, err := leanWriter{wrapper{wrapper{w}}}.Hijack()
		taken <- err
		if err == nil {
			_, _ = buffers.WriteString("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			_ = buffers.Flush()
			_ = conn.Close()
		}
	}))
	t.Cleanup(server.Close)
	resp, err := http.Get(server.URL)
	require.NoError(t, <-taken)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
}
