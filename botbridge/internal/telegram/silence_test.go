package telegram

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// swallower passes bytes on to a server, until it is told to swallow: connections of
// before then stay open and say nothing any more.
type swallower struct {
	net.Listener
	to string

	mu     sync.Mutex
	silent []chan struct{}
}

func (s *swallower) serve() {
	for {
		from, err := s.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", s.to)
		if err != nil {
			from.Close()
			continue
		}
		silence := make(chan struct{})
		s.mu.Lock()
		s.silent = append(s.silent, silence)
		s.mu.Unlock()
		pass := func(dst io.Writer, src io.Reader) {
			buffer := make([]byte, 32<<10)
			for {
				n, err := src.Read(buffer)
				if err != nil {
					return
				}
				select {
				case <-silence:
				default:
					_, _ = dst.Write(buffer[:n])
				}
			}
		}
		go pass(to, from)
		go pass(from, to)
	}
}

func (s *swallower) swallow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, silence := range s.silent {
		close(silence)
	}
	s.silent = nil
}

// Telegram speaks HTTP/2: all calls share a connection. One that has gone silent must
// not swallow every call that comes after.
func TestSilentConnectionIsLeft(t *testing.T) {
	t.Parallel()
	fake := fakebot.New(fakebot.Options{})
	defer fake.Close()
	server := httptest.NewUnstartedServer(fake)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	between := &swallower{Listener: listener, to: server.Listener.Addr().String()}
	defer between.Close()
	go between.serve()

	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	tg, err := New(Options{
		Token: fakebot.Token, Server: "https://" + listener.Addr().String(), HTTP: transport, Probe: 500 * time.Millisecond,
	})
	require.NoError(t, err)
	defer tg.Close()
	_, err = tg.Send(t.Context(), home, platform.Post{Text: "one"})
	require.NoError(t, err)
	between.swallow()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := tg.Send(ctx, home, platform.Post{Text: "two"})
		return err == nil
	}, time.Minute, 10*time.Millisecond, "a new connection is opened")
}
