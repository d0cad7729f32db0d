package loopback_test

import (
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system/network/loopback"
)

func TestLoopback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		web := loopback.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-time.After(time.Hour)
			_, _ = w.Write([]byte("late"))
		}))
		client := http.Client{Transport: loopback.NewTransport(http.DefaultTransport)}
		resp, err := client.Get(web.URL)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "late", string(body))
		require.Equal(t, time.Hour, time.Since(begin))

		address := web.Listener.Addr().String()
		web.Close()
		_, err = client.Get(web.URL)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = loopback.Dial(t.Context(), "tcp", address)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		again := loopback.ListenAt(address)
		conn, err := loopback.Dial(t.Context(), "tcp", address)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		require.NoError(t, again.Close())
	})
}

func TestOtherAddressesAreReal(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	conn, err := loopback.Dial(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}
