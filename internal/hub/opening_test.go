package hub_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// closedToAll checks that a hub that waits for its Redis or its storage takes nothing.
func (b *bench) closedToAll() {
	b.t.Helper()
	for _, path := range []string{"/queue", "/object_info", "/", "/hub/jobs", "/nonsense"} {
		resp, err := http.Get(b.web.URL + path)
		require.NoError(b.t, err)
		status, body := read(b.t, resp)
		require.Equal(b.t, http.StatusServiceUnavailable, status, path)
		require.NotEmpty(b.t, resp.Header.Get("Retry-After"), path)
		require.Contains(b.t, string(body), `"error": {"type": "starting"`, path)
	}
	require.Equal(b.t, http.StatusServiceUnavailable, statusOf(b.post("/prompt", fmt.Sprintf(`{"prompt": %s}`, picture(1)))))
	require.Equal(b.t, http.StatusServiceUnavailable, statusOf(b.upload("a.png", "", "bytes")))
	_, resp, err := websocket.Dial(b.t.Context(), b.web.URL+"/ws?clientId=ann", nil)
	require.Error(b.t, err)
	require.Equal(b.t, http.StatusServiceUnavailable, resp.StatusCode)
}

// becomesReady waits until the hub serves and has all of its instances.
func (b *bench) becomesReady() {
	b.t.Helper()
	eventually(b.t, func() bool { return b.hub.Ready(b.t.Context()) == nil }, time.Minute, 5*time.Millisecond)
	b.connected(len(b.settings.Instances))
}

// withInstance adds an instance to a hub that is not expected to connect to it yet.
func (b *bench) withInstance() {
	i := newInstance(b.t, sim.Config{})
	b.instances = append(b.instances, i)
	b.settings.Instances = append(b.settings.Instances, i.url())
}

// A hub whose storage is not mounted at the start does not take the empty folder for a
// new storage: files would count as lost, and links would end with their keys.
func TestStorageIsNotMountedAtTheStart(t *testing.T) {
	t.Parallel()
	mount := filepath.Join(t.TempDir(), "mount")
	b := newBench(t, 1, func(b *bench) { b.id.Storage = mount })
	name := b.finished(b.submit(picture(1), "ann")).Outputs["2"].Images[0].Filename
	_, link := b.linkTo(fmt.Sprintf(`{"filename": %q}`, name))
	b.stop()
	for _, empty := range []bool{true, false} {
		require.NoError(t, os.Rename(mount, mount+".away"))
		if empty {
			require.NoError(t, os.Mkdir(mount, 0o700))
		}
		b.start()
		require.ErrorIs(t, b.hub.Ready(t.Context()), files.ErrStorage)
		if empty {
			require.ErrorContains(t, b.hub.Ready(t.Context()), "is it mounted?")
		}
		b.closedToAll()
		require.Empty(t, must(filepath.Glob(filepath.Join(mount, "*")))(t), "nothing is written in its place")

		require.NoError(t, os.RemoveAll(mount))
		require.NoError(t, os.Rename(mount+".away", mount))
		b.becomesReady()
		for _, path := range []string{link, "/view?filename=" + name} {
			b.gets(path)
		}
		b.stop()
	}
	// Another location may be a new storage.
	b.id.Storage = mount + ".new"
	b.start()
	require.NoError(t, b.hub.Ready(t.Context()))
}

// Keys that turn out to be sealed with another secret once the storage is back are reported as
// such, and a reload repairs it.
func TestWrongSecretOfAStorageThatWasAway(t *testing.T) {
	t.Parallel()
	mount := filepath.Join(t.TempDir(), "mount")
	b := newBench(t, 0, func(b *bench) {
		b.id.Storage = mount
		b.settings.Secrets = []string{"what only the operator knows"}
	})
	b.stop()
	require.NoError(t, os.Rename(mount, mount+".away"))
	right := b.settings.Secrets
	b.settings.Secrets = []string{"a secret that is another one"}
	b.start()
	b.closedToAll()
	require.NoError(t, os.Rename(mount+".away", mount))
	eventually(t, func() bool {
		err := b.hub.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), keyring.ErrLocked.Error())
	}, time.Minute, 5*time.Millisecond)
	b.closedToAll()
	b.settings.Secrets = right
	require.NoError(t, b.hub.Start(t.Context(), b.settings))
	b.becomesReady()
}

// A reload while Redis is away keeps the runs, which end once it is back.
func TestReloadWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBench(t, 1, func(b *bench) { b.id.Redis = server.URL() })
	id := b.begins(work(20, 7, "none"), "ann")
	server.Kill()
	require.Error(t, b.hub.Ready(t.Context()))
	b.settings.MaxQueue = 77
	require.NoError(t, b.hub.Start(t.Context(), b.settings))
	require.Equal(t, 77, b.hub.Settings().MaxQueue)
	require.Equal(t, http.StatusServiceUnavailable, statusOf(b.post("/prompt", fmt.Sprintf(`{"prompt": %s}`, picture(1)))))
	server.Start()
	b.becomesReady()
	require.Equal(t, "success", b.finished(id).Status.Text)
	require.Equal(t, 1, started(b), "it ran once")
}

// A hub that cannot start says why in one line, and can be closed: the web server closes what
// failed to start, even if it was half open, and that must not panic.
func TestFailedStarts(t *testing.T) {
	server := redistest.Start(t)
	busy := newBench(t, 0)
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
		"no scripts":       {func(b *bench) { b.id.Redis = withoutScripts(t, server.Addr()) }, "the server runs no Lua scripts"},
		"gossip address":   {func(b *bench) { b.id.GossipBind = "203.0.113.1:1" }, "203.0.113.1:1"},
		"static instances": {func(b *bench) { b.settings.Instances = []string{"nonsense://x"} }, "nonsense"},
		"nothing to find":  {func(*bench) {}, ""},
		"a folder in use":  {func(b *bench) { b.id.Redis, b.id.Data = "embedded", busy.id.Data }, "in use by another hub"},
		"Redis is away":    {func(b *bench) { b.id.Redis, b.id.Storage = "redis://127.0.0.1:1", "nonsense://x" }, "neither a folder nor"},
		"A1111 server":     {func(b *bench) { b.settings.A1111 = []string{"nonsense://x"} }, "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{t: t, id: config.Identity{Redis: server.URL(), Data: t.TempDir(), Storage: t.TempDir(), GossipBind: "127.0.0.1:0", GossipKey: gossipKey}}
			b.settings.Logger = slog.New(slog.DiscardHandler)
			c.change(b)
			h := hub.New(b.id)
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
	serve := func(client net.Conn) {
		defer client.Close()
		server, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer server.Close()
		go func() { _, _ = io.Copy(client, server) }()
		for part, n := make([]byte, 64<<10), 0; err == nil; {
			n, err = client.Read(part)
			if bytes.Contains(bytes.ToLower(part[:min(n, 40)]), []byte("\neval")) {
				_, err = client.Write([]byte("-ERR unknown command 'evalsha'\r\n"))
			} else if n > 0 {
				_, err = server.Write(part[:n])
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(client)
		}
	}()
	return "redis://" + listener.Addr().String()
}

// A hub that starts while its Redis or its storage is away takes nothing, says why, and works as soon
// as they are there, with its keys.
func TestHubStartsBeforeItsParts(t *testing.T) {
	for name, c := range map[string]struct {
		away     error
		up, down string // metrics
		// lacks gives a hub something that is away, and returns what makes it come.
		lacks func(t *testing.T, b *bench) (comes func())
	}{
		"Redis": {redis.ErrUnavailable, "storage", "redis", func(t *testing.T, b *bench) func() {
			server := redistest.Start(t)
			server.Kill()
			b.id.Redis = server.URL()
			return server.Start
		}},
		"a folder": {files.ErrStorage, "redis", "storage", func(t *testing.T, b *bench) func() {
			parent := filepath.Join(t.TempDir(), "parent")
			require.NoError(t, os.WriteFile(parent, nil, 0o600)) // not even root makes a folder in a file
			b.id.Storage = filepath.Join(parent, "storage")
			return func() { require.NoError(t, os.Remove(parent)) }
		}},
		"a bucket": {files.ErrStorage, "redis", "storage", func(t *testing.T, b *bench) func() {
			backend := s3mem.New()
			require.NoError(t, backend.CreateBucket("pictures"))
			var there atomic.Bool
			store := gofakes3.New(backend).Server()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !there.Load() {
					w.WriteHeader(http.StatusForbidden) // which the driver does not try again
					return
				}
				store.ServeHTTP(w, r)
			}))
			t.Cleanup(srv.Close)
			bucket(t) // for its credentials
			b.id.Storage = "s3://pictures?endpoint=" + srv.URL
			return func() { there.Store(true) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			log := &logtest.Log{}
			var comes func()
			b := newBench(t, 0, func(b *bench) { b.log, comes = log, c.lacks(t, b) })
			require.ErrorIs(t, b.hub.Ready(t.Context()), config.ErrNotStarted)
			require.ErrorIs(t, b.hub.Ready(t.Context()), c.away)
			require.InDelta(t, 1, b.metric("comfyhub_"+c.up+"_up"), 0)
			require.InDelta(t, 0, b.metric("comfyhub_"+c.down+"_up"), 0)
			require.Contains(t, log.String(), "the hub accepts nothing until Redis and its storage work")
			b.closedToAll()
			b.stop()
			b.start() // what waits can be closed and started again
			b.withInstance()
			require.NoError(t, b.hub.Start(t.Context(), b.settings), "a reload meanwhile")
			b.closedToAll()

			comes()
			b.becomesReady()
			require.InDelta(t, 1, b.metric("comfyhub_"+c.down+"_up"), 0)
			id := idOf(t, b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "extra_data": {"api_key_comfy_org": "very secret"}}`, picture(1))))
			require.Equal(t, "success", b.finished(id).Status.Text)
			sig := base64.RawURLEncoding.EncodeToString(append([]byte{1}, make([]byte, 60)...))
			answered(b.get("/hub/files/a.png?exp="+strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)+"&sig="+sig))(t, http.StatusForbidden)
		})
	}
}
