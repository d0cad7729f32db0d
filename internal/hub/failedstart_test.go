package hub

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// A hub that cannot start says why in one line, and can be closed: the web server closes what
// failed to start, even if it was half open, and that must not panic.
func TestFailedStarts(t *testing.T) {
	sealed := t.TempDir()
	server := redistest.Start(t)
	first := newBench(t, 0, func(b *bench) {
		b.id.Redis, b.id.Storage, b.settings.Secrets = server.URL(), sealed, []string{"what only the operator knows"}
	})
	first.stop()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	frontend := filepath.Join(t.TempDir(), "none")
	for name, c := range map[string]struct {
		change func(b *bench)
		says   string
	}{
		"data folder":      {func(b *bench) { b.id.Data = filepath.Join(file, "data") }, "data folder"},
		"web UI":           {func(b *bench) { b.settings.Frontend = frontend }, "none"},
		"URL of Redis":     {func(b *bench) { b.id.Redis = "nonsense://" }, "nonsense"},
		"URL of storage":   {func(b *bench) { b.id.Storage = "nonsense://x" }, "neither a folder nor"},
		"another secret":   {func(b *bench) { b.settings.Secrets = []string{"a secret that is another one"} }, "give the hub the secret that it had before"},
		"no secret":        {func(b *bench) { b.settings.Secrets = nil }, "secret"},
		"no scripts":       {func(b *bench) { b.id.Redis = withoutScripts(t, server.Addr()) }, "the server runs no Lua scripts"},
		"gossip address":   {func(b *bench) { b.id.GossipBind = "203.0.113.1:1" }, "203.0.113.1:1"},
		"static instances": {func(b *bench) { b.settings.Instances = []string{"nonsense://x"} }, "nonsense"},
		"nothing to find":  {func(*bench) {}, ""},
		"A1111 server":     {func(b *bench) { b.settings.A1111 = []string{"nonsense://x"} }, "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{t: t, id: Identity{Redis: server.URL(), Data: t.TempDir(), Storage: sealed, GossipBind: "127.0.0.1:0", GossipKey: gossipKey}}
			b.settings = first.settings
			c.change(b)
			h := New(b.id)
			err := h.Start(t.Context(), b.settings)
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
				require.NotContains(t, err.Error(), "\n")
			}
			for range 2 {
				require.NoError(t, h.Close(context.Background()))
			}
			require.Error(t, h.Start(t.Context(), b.settings), "%s: it is closed")
		})
	}
}

// withoutScripts is the URL of a Redis that has no EVAL, as some that are managed.
func withoutScripts(t *testing.T, addr string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				return
			}
			go func() {
				defer client.Close()
				_, _ = io.Copy(client, server)
			}()
			go func() {
				defer server.Close()
				part := make([]byte, 64<<10)
				for {
					n, err := client.Read(part)
					if err != nil {
						return
					}
					if bytes.Contains(bytes.ToLower(part[:min(n, 40)]), []byte("\neval")) {
						_, err = client.Write([]byte("-ERR unknown command 'evalsha'\r\n"))
					} else {
						_, err = server.Write(part[:n])
					}
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return "redis://" + listener.Addr().String()
}

// A reload with another secret is refused, and the hub goes on with the old one.
func TestReloadWithAnotherSecret(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, func(b *bench) { b.settings.Secrets = []string{"what only the operator knows"} })
	wrong := b.settings
	wrong.Secrets = []string{"a secret that is another one"}
	err := b.hub.Start(t.Context(), wrong)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "\n")
	require.NoError(t, b.hub.Start(t.Context(), b.settings))
	require.Equal(t, "success", b.finished(b.submit(picture(1), "ann")).Status.Text)
}
