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

	"github.com/stretchr/testify/require"
)

// maskedText is a text frame as a client sends it, with a mask of zeros.
func maskedText(text string) []byte {
	frame := binary.BigEndian.AppendUint16([]byte{0x81, 0x80 | 126}, uint16(len(text)))
	return append(append(frame, 0, 0, 0, 0), text...)
}

// Some clients send their first message without waiting for the handshake's answer.
func TestMessageBehindTheHandshake(t *testing.T) {
	sideBySide(t, map[string]int{"short": 0, "longer than the buffer": 2 * readBuffer}, func(t *testing.T, spaces int) {
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

// requireText reads a connection until a text has come.
func requireText(t *testing.T, conn net.Conn, text string) {
	t.Helper()
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

// wrapper is a response like those of Caddy: it would count what goes over a connection.
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
