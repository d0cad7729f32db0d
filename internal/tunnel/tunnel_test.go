package tunnel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// open returns both ends of a tunnel; the agent serves a handler.
func open(t *testing.T, handler http.Handler) (hub, agent *Session) {
	t.Helper()
	accepted := make(chan *Session, 1)
	done := make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/login/") {
			w.Header().Set("WWW-Authenticate", `Basic realm="restricted"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if Token(r) != "attic:secret" || r.URL.Path != "/below"+Path {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		s, err := Accept(w, r)
		if err != nil {
			return
		}
		accepted <- s
		<-done
	}))
	client := &http.Client{Transport: &http.Transport{}}
	_, err := Dial(t.Context(), site.URL+"/below", "attic:other", "test", client)
	require.ErrorIs(t, err, ErrToken)
	_, err = Dial(t.Context(), site.URL+"/login", "attic:secret", "test", client)
	require.ErrorIs(t, err, ErrLogin)
	agent, err = Dial(t.Context(), site.URL+"/below", "attic:secret", "test", client)
	require.NoError(t, err)
	hub = <-accepted
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(agent) }()
	t.Cleanup(func() {
		require.NoError(t, agent.Close())
		require.NoError(t, hub.Close())
		require.NoError(t, server.Close())
		require.Error(t, <-served)
		close(done)
		site.Close()
		client.CloseIdleConnections()
	})
	return hub, agent
}

// Many connections at once, each with more than fits on its way.
func TestConnections(t *testing.T) {
	t.Parallel()
	hub, _ := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	transport := &http.Transport{DialContext: hub.DialContext}
	defer transport.CloseIdleConnections()
	var all errgroup.Group
	for n := range 20 {
		all.Go(func() error {
			body := bytes.Repeat([]byte{byte(n)}, 3*window)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://agent/echo", bytes.NewReader(body))
			if err != nil {
				return err
			}
			resp, err := transport.RoundTrip(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			sum := sha256.New()
			if _, err := io.Copy(sum, resp.Body); err != nil {
				return err
			}
			if want := sha256.Sum256(body); !bytes.Equal(sum.Sum(nil), want[:]) {
				return fmt.Errorf("connection %d: other bytes", n)
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
}

// An agent cannot make the hub hold connections that nobody accepts.
func TestAnAgentOpensNothing(t *testing.T) {
	t.Parallel()
	_, agent := open(t, http.NotFoundHandler())
	opened := 0
	for range 50 {
		c, err := agent.Open()
		if err != nil {
			break
		}
		patience := time.Second
		if opened > 0 { // one may wait, and the hub may be slow to refuse the next one
			patience = time.Minute
		}
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		if _, err := c.Write([]byte("x")); err != nil {
			break
		}
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) || err != nil && strings.Contains(err.Error(), "reset") {
			break
		}
		opened++
	}
	require.LessOrEqual(t, opened, 1, "connections that wait")
}

func TestTheEndOfATunnel(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	hub, agent := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	}))
	failed := make(chan error, 1)
	go func() {
		reports, err := hub.Reports()
		if err == nil {
			reports.Close()
		}
		failed <- err
	}()
	<-begun
	require.NoError(t, agent.Close())
	require.Error(t, <-failed, "what goes on in it ends")
	_, err := hub.DialContext(t.Context(), "tcp", "agent:80")
	require.Error(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = hub.DialContext(ctx, "tcp", "agent:80")
	require.Error(t, err)
}

func TestDialElsewhere(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, url := range []string{site.URL, "ftp://hub", "hub.example.com", "https://user:x@hub", "https://hub?x=1", "http://127.0.0.1:1"} {
		_, err := Dial(t.Context(), url, "attic:secret", "test", client)
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestMachine(t *testing.T) {
	t.Parallel()
	name, err := Machine("at.tic-1_2:secret")
	require.NoError(t, err)
	require.Equal(t, "at.tic-1_2", name)
	for _, token := range []string{"", "attic", ":secret", "at tic:secret", "a/b:secret"} {
		_, err := Machine(token)
		require.Error(t, err, token)
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	report := fleet.Report{Agent: "attic", Boot: 3, Seq: 1, Instances: []fleet.InstanceReport{{Name: "a", URL: "tunnel://attic/i/a", Up: true}}}
	require.NoError(t, WriteReport(&b, &report))
	require.NoError(t, WriteReport(&b, nil))
	got, err := ReadReport(&b)
	require.NoError(t, err)
	require.Equal(t, report, got)
	_, err = ReadReport(&b)
	require.ErrorIs(t, err, ErrLeave)
	_, err = ReadReport(&b)
	require.ErrorIs(t, err, io.EOF)
	_, err = ReadReport(strings.NewReader("\xff\xff\xff\xff"))
	require.ErrorContains(t, err, "bytes")
	_, err = ReadReport(strings.NewReader("\x00\x00\x00\x02\x01{"))
	require.ErrorIs(t, err, fleet.ErrReport)
}

func FuzzReadReport(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, WriteReport(&b, &fleet.Report{Agent: "attic", Boot: 3, Seq: 1}))
	f.Add(b.Bytes())
	f.Add([]byte("\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x02\x01{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		report, err := ReadReport(bytes.NewReader(data))
		if err == nil {
			require.NoError(t, fleet.CheckName(report.Agent))
		}
	})
}

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
		program := must.Get(os.Executable())(t)
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
		agent := must.Get(Dial(t.Context(), "https://example.com", "attic:secret", "test", &http.Client{Transport: transport}))(t)
		hub := <-accepted
		comfyui := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "here")
		})}
		go func() { _ = comfyui.Serve(agent) }()
		client := &http.Client{Transport: &http.Transport{DialContext: hub.DialContext, DisableKeepAlives: true}}
		for range 3 {
			<-time.After(time.Hour)
			resp := must.Get(client.Get("http://agent/"))(t)
			body := must.Get(io.ReadAll(resp.Body))(t)
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
