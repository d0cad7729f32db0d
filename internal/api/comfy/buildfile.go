package comfy

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/webui"
)

const (
	// awaitBuild is how long a browser waits for a file of a page that it has
	// begun to draw: ComfyUI needs about half a minute to start again.
	awaitBuild = 45 * time.Second
	// awaitBuildEvery is how often the instances are looked at meanwhile.
	awaitBuildEvery = 250 * time.Millisecond
	// maxAwaitingBuild bounds the requests that wait so.
	maxAwaitingBuild = 2000
)

// buildFiles answers for files of the web UI's build whose instance has died
// while a page was loading. One file that fails leaves the page blank for good:
// the script that would say so is among those that fail.
type buildFiles struct{ waiting atomic.Int64 }

// AwaitingBuild is how many requests wait for such a file.
func (c *Room) AwaitingBuild() int64 { return c.builds.waiting.Load() }

// needsBuildFile reports whether a request is for such a file.
func needsBuildFile(r *http.Request, asked aiohttp.Path) bool {
	return r.Method == http.MethodGet && !upgrades(r) && webui.IsHashed(asked.Decoded())
}

// serveKept answers with a file that the hub has kept of an instance, and reports
// whether it has one. A query could mean something to a custom node. A visitor who
// reloads the page with all of its files (Ctrl+F5) wants the instance's own.
func (c *Room) serveKept(from *comfyui.Client, w http.ResponseWriter, r *http.Request, asked aiohttp.Path) bool {
	name := asked.Decoded()
	switch {
	case !api.IsRead(r), upgrades(r), len(api.QueryOf(r)) > 0, !webui.IsFile(name), asked.Escaped() != name,
		!webui.IsHashed(name) && strings.Contains(r.Header.Get("Cache-Control"), "no-cache"):
		return false
	}
	file := c.hub().WebUI.Get(r.Context(), from, asked.Escaped())
	if file == nil {
		return false
	}
	if err := file.Serve(w, r, c.Log(), nil); err != nil {
		c.Fail(w, r, err)
	}
	return true
}

// tellPage lets the hub know which page an instance answers with, before the
// visitor can ask for a file of it.
func (c *Room) tellPage(from *comfyui.Client, w http.ResponseWriter) http.ResponseWriter {
	return &api.LateWriter{ResponseWriter: w, Late: func(header http.Header, status int) {
		if status == http.StatusOK || status == http.StatusNotModified {
			c.hub().WebUI.Page(from, header)
		}
	}}
}

// serveBuildFile answers with the file from whichever instance has it, of those that the
// page may come from. Names with a hash are the same file at all of them. While none can be
// asked it waits for one.
func (c *Room) serveBuildFile(w http.ResponseWriter, r *http.Request) {
	if c.builds.waiting.Add(1) > maxAwaitingBuild {
		c.builds.waiting.Add(-1)
		api.WriteNoInstance(w)
		return
	}
	defer c.builds.waiting.Add(-1)
	deadline := time.NewTimer(awaitBuild)
	defer deadline.Stop()
	tick := time.NewTicker(awaitBuildEvery)
	defer tick.Stop()
	for {
		reached := false
		for _, source := range c.hub().Instances.PageSources() {
			resp, err := source.Client.Ask(r.Context(), api.PathOf(r).Escaped(), nil)
			switch {
			case err != nil:
				continue
			case resp.StatusCode != http.StatusOK:
				reached = true
				resp.Body.Close()
				continue
			}
			api.CopyAnswer(w, resp)
			return
		}
		if reached {
			api.WriteNotFound(w, r)
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			api.WriteNoInstance(w)
			return
		case <-r.Context().Done():
			return
		}
	}
}
