package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// network is one TCP port of a network in memory.
type network struct {
	dialed chan net.Conn
	closed chan struct{}
}

func newNetwork() *network { return &network{make(chan net.Conn), make(chan struct{})} }

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case n.dialed <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.dialed:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error   { close(n.closed); return nil }
func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

// proxy ends the TLS of what is dialed at one network and passes it on to another one. It
// cuts a connection that is silent in either direction for a time, as nginx does.
func proxy(from, to *network, certificate tls.Certificate, idle time.Duration) {
	pass := func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		buffer := make([]byte, 1<<15)
		for {
			_ = from.SetReadDeadline(time.Now().Add(idle))
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	for {
		raw, err := from.Accept()
		if err != nil {
			return
		}
		client := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{certificate}})
		server, err := to.dial(context.Background(), "", "")
		if err != nil {
			return
		}
		go pass(server, client)
		go pass(client, server)
	}
}

// alone is set in the environment of the process that has nothing else to test.
const alone = "COMFYHUB_TEST_ALONE"

// A proxy that ends TLS and cuts idle connections after a minute leaves a tunnel alone for
// hours, also while nothing goes on in it.
func TestIdleProxy(t *testing.T) {
	t.Parallel()
	if os.Getenv(alone) == "" {
		// In a process of its own: yamux has a pool of timers, and those of a bubble of synctest
		// must not be used outside.
		program, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command(program, "-test.run", "^TestIdleProxy$") // #nosec G204 -- this very test
		cmd.Env = append(os.Environ(), alone+"=1")
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, string(said))
		require.Contains(t, string(said), "PASS")
		return
	}
	lender := httptest.NewTLSServer(http.NotFoundHandler())
	certificate, roots := lender.TLS.Certificates[0], x509.NewCertPool()
	roots.AddCert(lender.Certificate())
	lender.Close()
	synctest.Test(t, func(t *testing.T) {
		outside, inside := newNetwork(), newNetwork()
		accepted := make(chan *Session, 1)
		done := make(chan struct{})
		site := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s, err := Accept(w, r)
			if err == nil {
				accepted <- s
				<-done
			}
		})}
		go func() { _ = site.Serve(inside) }()
		go proxy(outside, inside, certificate, time.Minute)

		silent, err := outside.dial(t.Context(), "", "")
		require.NoError(t, err)
		defer silent.Close()
		began := time.Now()
		_, err = tls.Client(silent, &tls.Config{RootCAs: roots, ServerName: "example.com"}).Read(make([]byte, 1))
		require.Error(t, err)
		require.Equal(t, time.Minute, time.Since(began), "the proxy cuts")

		transport := &http.Transport{DialContext: outside.dial, TLSClientConfig: &tls.Config{RootCAs: roots}}
		agent, err := Dial(t.Context(), "https://example.com", "attic:secret", "test", &http.Client{Transport: transport})
		require.NoError(t, err)
		hub := <-accepted
		comfyui := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "here")
		})}
		go func() { _ = comfyui.Serve(agent) }()
		client := &http.Client{Transport: &http.Transport{DialContext: hub.DialContext, DisableKeepAlives: true}}
		for range 3 {
			<-time.After(time.Hour)
			resp, err := client.Get("http://agent/")
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, "here", string(body))
		}
		require.NoError(t, comfyui.Close())
		require.NoError(t, hub.Close())
		close(done)
		require.NoError(t, site.Close())
		require.NoError(t, outside.Close())
		transport.CloseIdleConnections()
	})
}
