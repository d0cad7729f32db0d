package ops

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
)

// InstancesJSON is the fleet for its operator: GET /hub/instances with the
// addresses of all instances and the ids of all prompts.
func InstancesJSON(all []fleet.Instance) []byte { return pyjson.Marshal(instanceList(all)) }

func instanceList(instances []fleet.Instance) pyjson.Array {
	list := pyjson.Array{}
	for _, i := range instances {
		list = append(list, instanceValue(i))
	}
	return list
}

func instanceValue(i fleet.Instance) *pyjson.Object {
	lastSeen := pyjson.Value(pyjson.Null{})
	if !i.LastSeen.IsZero() {
		lastSeen = pyjson.Int(i.LastSeen.Unix())
	}
	o := pyjson.NewObject(
		pyjson.Member{Key: "name", Value: pyjson.String(i.Name)},
		pyjson.Member{Key: "url", Value: pyjson.String(i.URL)},
		pyjson.Member{Key: "kind", Value: pyjson.String(i.Kind)},
		pyjson.Member{Key: "state", Value: pyjson.String(i.State)},
		pyjson.Member{Key: "running", Value: stringOrNull(i.Running)},
		pyjson.Member{Key: "version", Value: pyjson.String(i.Report.Version)},
		pyjson.Member{Key: "gpu", Value: pyjson.String(i.Report.GPU)},
		pyjson.Member{Key: "vram_total", Value: pyjson.Int(i.Report.VRAMTotal)},
		pyjson.Member{Key: "vram_free", Value: pyjson.Int(i.Report.VRAMFree)},
		pyjson.Member{Key: "last_seen", Value: lastSeen},
		pyjson.Member{Key: "reason", Value: pyjson.String(i.Reason)},
	)
	if i.Report.OthersMemory > 0 {
		o.Set("others_memory", pyjson.Int(i.Report.OthersMemory))
	}
	if i.Report.OthersUse > 0 {
		o.Set("others_use", pyjson.Int(int64(i.Report.OthersUse)))
	}
	if i.Report.Restarts > 0 {
		o.Set("restarts", pyjson.Int(int64(i.Report.Restarts)))
	}
	if i.Report.RestartAt > 0 {
		o.Set("restart_at", pyjson.Int(i.Report.RestartAt/1000)) // Unix seconds, as all times here
	}
	if i.Report.RestartError != "" {
		o.Set("restart_error", pyjson.String(i.Report.RestartError))
	}
	if i.Report.DiskSize > 0 {
		o.Set("disk_free", pyjson.Int(i.Report.DiskFree))
		o.Set("disk_size", pyjson.Int(i.Report.DiskSize))
	}
	if len(i.Reserved) > 0 {
		o.Set("reserved", pyjson.Strings(i.Reserved))
	}
	return o
}

// getInstances answers GET /hub/instances.
func (o *room) getInstances(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	api.WriteListing(w, r, instanceList(o.hub().Insight.Instances(r.Context(), a.Viewer())))
}

// getStats answers GET /hub/stats: the fleet in a few numbers.
func (o *room) getStats(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	stats, err := o.hub().Insight.Stats(r.Context(), a.Viewer())
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	api.WriteValue(w, statsValue(stats))
}

// StatsJSON is GET /hub/stats for the operator.
func StatsJSON(s view.Stats) []byte { return pyjson.Marshal(statsValue(s)) }

func statsValue(stats view.Stats) *pyjson.Object {
	states := pyjson.NewObject()
	for _, s := range fleet.States() {
		states.Set(string(s), pyjson.Int(int64(stats.Instances[s])))
	}
	o := pyjson.NewObject(
		pyjson.Member{Key: "queued", Value: pyjson.Int(int64(stats.Waiting))},
		pyjson.Member{Key: "running", Value: pyjson.Int(int64(stats.Running))},
		pyjson.Member{Key: "sockets", Value: pyjson.Int(int64(stats.Sockets))},
		pyjson.Member{Key: "instances", Value: states},
	)
	if stats.Ended >= 0 {
		o.Set("ended", pyjson.Int(stats.Ended))
		o.Set("model_switches", pyjson.Int(stats.Switched))
		o.Set("model_switches_saved", pyjson.Int(stats.Saved))
	}
	if stats.WebUI.From != "" {
		o.Set("web_ui", webUIValue(stats.WebUI))
	}
	if stats.Strangers != "" {
		o.Set("strangers", pyjson.String(stats.Strangers))
	}
	if stats.Paused {
		o.Set("paused", pyjson.Bool(true))
	}
	return o
}

// webUIValue is where the page of ComfyUI comes from.
func webUIValue(w origin.WebUISource) *pyjson.Object {
	return pyjson.NewObject(
		pyjson.Member{Key: "from", Value: pyjson.String(w.From)},
		pyjson.Member{Key: "name", Value: pyjson.String(w.Name)},
	)
}

func stringOrNull(s string) pyjson.Value {
	if s == "" {
		return pyjson.Null{}
	}
	return pyjson.String(s)
}
