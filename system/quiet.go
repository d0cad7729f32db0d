package system

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

// quietWithin is how long hubs may take to show that nothing is left to do.
const quietWithin = 2 * time.Minute

// forgetWithin is how long Redis may keep what was needed until then. Who owned a client is
// kept until its replay window has ended.
const forgetWithin = 3 * time.Minute

// CheckQuiet checks, when all clients have been told of all ends, that nothing is left of
// their prompts: hubs show none, Redis forgets what only they needed, and so do the hubs. It
// must be called in a bubble, and takes minutes.
func (w *World) CheckQuiet(ledger *Ledger) {
	w.Rental.check(ledger)
	w.checkShown(ledger)
	w.checkRemains(ledger)
	w.Cloud.check(ledger)
	for _, h := range w.Hubs {
		h.checkEntries(ledger)
	}
}

// checkShown checks that every hub says that all is done: nothing in /queue, GET /prompt
// counts the same, and every server is idle. And so it is.
func (w *World) checkShown(ledger *Ledger) {
	client := w.HTTP("observer")
	defer client.CloseIdleConnections()
	for _, h := range w.Hubs {
		left := ""
		for deadline := time.Now().Add(quietWithin); ; <-time.After(time.Second) {
			if left = h.left(client); left == "" {
				break
			}
			if time.Now().After(deadline) {
				ledger.breach(h.name, "all prompts have ended, and %v later there is %s", quietWithin, left)
				break
			}
		}
	}
}

// checkRemains checks that Redis then forgets all that nothing needs any more.
func (w *World) checkRemains(ledger *Ledger) {
	for deadline := time.Now().Add(forgetWithin); ; <-time.After(10 * time.Second) {
		left, err := w.remains()
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			ledger.breach("redis", "all prompts have ended, and %v later it has %v (%v) %s", forgetWithin, left, err, w.Redis.buried())
			return
		}
	}
}

// left is what a hub still shows as work, empty if nothing.
func (h *Hub) left(client *http.Client) string {
	var count struct {
		Info struct {
			Remaining int `json:"queue_remaining"`
		} `json:"exec_info"`
	}
	var queue struct {
		Running []json.RawMessage `json:"queue_running"`
		Pending []json.RawMessage `json:"queue_pending"`
	}
	var instances []shownInstance
	for path, answer := range map[string]any{"/prompt": &count, "/queue": &queue, "/hub/instances": &instances} {
		resp, err := client.Get(h.URL() + path)
		if err != nil {
			return err.Error()
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || json.Unmarshal(body, answer) != nil {
			return fmt.Sprintf("%s: %d %.200s", path, resp.StatusCode, body)
		}
	}
	if n := len(queue.Running) + len(queue.Pending); n != 0 || count.Info.Remaining != 0 {
		return fmt.Sprintf("%d in /queue, and %d by GET /prompt", n, count.Info.Remaining)
	}
	instances = h.w.Rental.withoutGone(ofFleet(instances))
	if len(instances) != len(h.w.Comfys)+len(h.w.Rental.all()) {
		return fmt.Sprintf("a fleet of %v", instances)
	}
	for _, i := range instances {
		if n := h.w.behind(i.Name).Remaining(); i.State != "idle" || n != 0 {
			return fmt.Sprintf("%s, which is %s, with %d prompts", i.Name, i.State, n)
		}
	}
	return ""
}

// shownInstance is one of /hub/instances.
type shownInstance struct{ Name, State string }

// ofFleet are the instances that are servers, and no places at an endpoint.
func ofFleet(all []shownInstance) []shownInstance {
	return slices.DeleteFunc(all, func(i shownInstance) bool { return strings.HasPrefix(i.Name, fleet.OverflowScheme+":") })
}

// behind is the server that an instance is: that of an agent, or one that hubs know by its
// address. It is nil if its machine is gone.
func (w *World) behind(instance string) *Comfy {
	if m := w.Rental.machine(instance); m != nil {
		return m.server()
	}
	host, _, _ := strings.Cut(instance, ":")
	host, _, _ = strings.Cut(host, "/")
	for _, a := range w.Agents {
		if a.name == host {
			return a.comfy
		}
	}
	if strings.HasPrefix(instance, rentedName) {
		return nil
	}
	return w.comfy(host)
}
