package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/mount"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// Hub is the process of a hub, which can be killed and started again.
type Hub struct {
	w          *World
	name       string
	generation int
	running    *hub.Hub
	web        *http.Server
	disk       *handle
	// cuts counts what power cuts have torn: each file in turn in another way.
	cuts int
}

func newHub(w *World, name string) *Hub { return &Hub{w: w, name: name} }

// URL is where clients reach it.
func (h *Hub) URL() string { return "http://" + h.name + ":8188" }

func (h *Hub) data() string { return h.w.folder(h.name, fmt.Sprint("data", h.generation)) }

// Start starts the process, with the data of the one before.
func (h *Hub) Start() {
	t := h.w.t
	require.NoError(t, os.MkdirAll(h.data(), 0o700))
	h.disk = h.w.Disk.handle(h.name)
	h.running = hub.New(config.Identity{
		Redis: redisURL, Data: h.data(), Storage: h.w.folder("storage"), GossipBind: h.w.gossipAt(h.name), GossipKey: gossipKey,
		Network: &config.Network{Dial: h.w.Net.Dialer(h.name), Gossip: newChatter(h.w, h.name), Storage: h.disk.pass},
	})
	rooms := mount.New(h.running)
	h.Reload("")
	secret := api.NewTenantSecret(h.w.size.TenantSecret)
	h.web = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		rooms.Serve(w, r, api.Visitor{IP: host, Named: r.Header.Get("X-ComfyHub-Tenant"), TenantSecret: secret})
	})}
	l, err := h.w.Net.Listen(h.name + ":8188")
	require.NoError(t, err)
	h.w.work.Go(func() { _ = h.web.Serve(l) })
}

// Reload applies a configuration that lacks one of the servers that have no agent; "" lacks
// none.
func (h *Hub) Reload(without string) {
	settings := config.Settings{Logger: h.w.log.With("hub", h.name), Overflow: h.w.Cloud.settings(h.name), Scale: h.w.Rental.classes(h.name)}
	for _, c := range h.w.Comfys[len(h.w.Agents):] {
		if c.name != without {
			settings.Instances = append(settings.Instances, c.URL())
		}
	}
	for _, other := range h.w.Hubs {
		if other != h {
			settings.Join = append(settings.Join, h.w.gossipAt(other.name))
		}
	}
	if change := h.w.size.Settings; change != nil {
		change(&settings)
	}
	require.NoError(h.w.t, h.running.Start(context.WithoutCancel(h.w.ended), settings))
}

// Stop is SIGTERM.
func (h *Hub) Stop() {
	if h.running == nil {
		return
	}
	_ = h.web.Close()
	_ = h.running.Close(context.Background())
	h.running = nil
	h.leave()
}

// leave gives the next process the data as they are now: what this one still writes is not seen.
func (h *Hub) leave() {
	before := h.data()
	h.generation++
	data := os.DirFS(before)
	require.NoError(h.w.t, fs.WalkDir(data, ".", func(path string, d fs.DirEntry, err error) error {
		var content []byte
		if err == nil && d.IsDir() {
			return os.MkdirAll(filepath.Join(h.data(), path), 0o700)
		}
		if err == nil {
			content, err = fs.ReadFile(data, path)
		}
		if errors.Is(err, fs.ErrNotExist) { // the dead process may still delete files
			return nil
		}
		return errors.Join(err, os.WriteFile(filepath.Join(h.data(), path), content, 0o600))
	}))
}

// Kill is kill -9: from now on the process reaches nobody and no file. What its goroutines
// do until they have ended is seen by nobody.
func (h *Hub) Kill() {
	if h.running == nil {
		return
	}
	h.disk.revoke()
	dead, web := h.running, h.web
	h.running = nil
	h.w.Net.Kill(h.name)
	h.leave()
	_ = web.Close()
	h.w.work.Go(func() { _ = dead.Close(context.Background()) })
}

// LoseNotes removes what the process that ended has noted for the next one.
func (h *Hub) LoseNotes() { require.NoError(h.w.t, os.RemoveAll(filepath.Join(h.data(), "notes"))) }

// Ready is why the hub cannot accept prompts and run them now, nil if it can.
func (h *Hub) Ready() error { return h.running.Ready(h.w.ended) }

// Findings is what `comfyhub check` shows.
func (h *Hub) Findings() []config.Finding { return h.running.Checkup.Findings(h.w.ended) }

// Whole reports whether the hub can use all servers.
func (h *Hub) Whole() bool {
	var instances []shownInstance
	client := h.w.HTTP("observer")
	defer client.CloseIdleConnections()
	resp, err := client.Get(h.URL() + "/hub/instances")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(body, &instances) != nil {
		return false
	}
	servers := ofFleet(instances)
	servers = slices.DeleteFunc(servers, func(i shownInstance) bool { return h.w.behind(i.Name) == nil })
	if len(servers) != len(h.w.Comfys) {
		return false
	}
	for _, i := range servers {
		if i.State != "idle" && i.State != "busy" {
			return false
		}
	}
	return true
}
