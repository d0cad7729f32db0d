package stream

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

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
