package network_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system/network"
)

// pair connects a to b, which listens at b:80.
func pair(t *testing.T, n *network.Network) (client, server net.Conn) {
	t.Helper()
	l, err := n.Listen("b:80")
	require.NoError(t, err)
	client, err = n.Dialer("a")(t.Context(), "tcp", "b:80")
	require.NoError(t, err)
	server, err = l.Accept()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}

func readAll(t *testing.T, c net.Conn, n int) string {
	t.Helper()
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	require.NoError(t, err)
	return string(b)
}

func TestDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		client, server := pair(t, n)
		n.Set("a", "b", network.Link{Delay: time.Minute})
		began := time.Now()
		_, err := client.Write([]byte("slow"))
		require.NoError(t, err)
		n.Set("a", "b", network.Link{})
		_, err = client.Write([]byte("later"))
		require.NoError(t, err)
		require.Equal(t, "slowlater", readAll(t, server, 9), "nothing overtakes")
		require.Equal(t, time.Minute, time.Since(began))
		_, err = server.Write([]byte("back"))
		require.NoError(t, err)
		require.Equal(t, "back", readAll(t, client, 4))
		require.Equal(t, time.Minute, time.Since(began), "the other direction is as it was")
	})
}

func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		client, server := pair(t, n)
		n.Set("a", "b", network.Link{Silent: true})
		_, err := client.Write([]byte("x"))
		require.NoError(t, err, "nobody is told")
		require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err = server.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = n.Dialer("a")(ctx, "tcp", "b:80")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		n.Set("a", "b", network.Link{})
		require.NoError(t, server.SetReadDeadline(time.Time{}))
		require.Equal(t, "x", readAll(t, server, 1))
		_, err = n.Dialer("a")(t.Context(), "tcp", "b:80")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
}

// A frozen process sees nothing, and no deadline of a connection passes for it. When it goes
// on, it reads what has come before it notices how late it is.
func TestFrozen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		client, server := pair(t, n)
		began := time.Now()
		n.Freeze("b")
		time.AfterFunc(time.Hour, func() { n.Thaw("b") })
		_, err := client.Write([]byte("x"))
		require.NoError(t, err, "nobody is told")
		require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Minute)))
		dialled := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := n.Dialer("b")(ctx, "tcp", "a:80")
			dialled <- err
		}()
		require.Equal(t, "x", readAll(t, server, 1))
		require.Equal(t, time.Hour, time.Since(began))
		_, err = server.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.ErrorIs(t, <-dialled, context.DeadlineExceeded)
		require.Equal(t, time.Hour, time.Since(began))
		n.Freeze("b")
		time.AfterFunc(time.Hour, func() { n.Kill("b") })
		_, err = server.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Equal(t, 2*time.Hour, time.Since(began))
	})
}

// A library that closes a connection may wait for whoever reads it with a lock held.
func TestFrozenProcessClosesWhatItReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		_, server := pair(t, n)
		n.Freeze("b")
		read := make(chan error)
		go func() {
			_, err := server.Read(make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-read, net.ErrClosed)
	})
}

func TestKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		client, server := pair(t, n)
		_, err := server.Write([]byte("lost"))
		require.NoError(t, err)
		n.Kill("b")
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = client.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		client, server := pair(t, n)
		_, err := client.Write([]byte("bye"))
		require.NoError(t, err)
		require.NoError(t, client.Close())
		rest, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Equal(t, "bye", string(rest))
		require.NoError(t, server.Close())
		require.Zero(t, n.Open())
	})
}

// A reader that does not read holds up its writer.
func TestWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, _ := pair(t, network.New())
		require.NoError(t, client.SetWriteDeadline(time.Now().Add(time.Minute)))
		n, err := client.Write(make([]byte, 1<<20))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 256<<10, n)
	})
}

// HTTP works over it.
func TestHTTP(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		l, err := n.Listen("web:80")
		require.NoError(t, err)
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		})}
		go func() { _ = server.Serve(l) }()
		transport := &http.Transport{DialContext: n.Dialer("client")}
		body := strings.Repeat("x", 1<<20)
		resp, err := (&http.Client{Transport: transport}).Post("http://web:80/", "", strings.NewReader(body))
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, body, string(got))
		transport.CloseIdleConnections()
		require.NoError(t, server.Close())
		<-time.After(time.Second) // for which the server's last connection lingers
	})
}

// Datagrams arrive, late on a slow link; those on a silent one are lost, and a frozen host
// finds them when it goes on.
func TestDatagrams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		at := n.IP("b").String() + ":53"
		a, err := n.OpenPort("a:53")
		require.NoError(t, err)
		b, err := n.OpenPort(at)
		require.NoError(t, err)
		n.Set("a", "b", network.Link{Silent: true})
		a.Send([]byte("lost"), at)
		n.Set("a", "b", network.Link{Delay: time.Minute})
		a.Send([]byte("late"), at)
		began := time.Now()
		d, err := b.Receive()
		require.NoError(t, err)
		require.Equal(t, "late", string(d.Data))
		require.Equal(t, "a", d.From)
		require.Equal(t, time.Minute, time.Since(began))
		n.Set("a", "b", network.Link{})
		a.Send([]byte("held"), "b:53")
		n.Freeze("b")
		time.AfterFunc(time.Hour, func() { n.Thaw("b") })
		d, err = b.Receive()
		require.NoError(t, err)
		require.Equal(t, "held", string(d.Data))
		require.Equal(t, time.Hour+time.Minute, time.Since(began))
		n.Kill("b")
		_, err = b.Receive()
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

// What a killed process had reaches nobody any more; the next process on the host does.
func TestDeadProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		l, err := n.Listen("b:80")
		require.NoError(t, err)
		before := n.Dialer("a")
		n.Kill("a")
		_, err = before(t.Context(), "tcp", "b:80")
		require.ErrorIs(t, err, syscall.ENETDOWN)
		conn, err := n.Dialer("a")(t.Context(), "tcp", n.IP("b").String()+":80")
		require.NoError(t, err, "also by the IP address")
		require.NoError(t, conn.Close())
		require.NoError(t, l.Close())
	})
}
