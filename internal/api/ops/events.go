package ops

import (
	"errors"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// The events of GET /hub/events.
const (
	// eventHello says who watches, and is the first.
	eventHello = "hello"
	// eventSnapshot shows everything; what was known before is void.
	eventSnapshot = "snapshot"
	// eventChange shows what has changed: rows that are new, and of others the members that
	// are different.
	eventChange = "change"
)

// dashboard answers what the dashboard shows.
type dashboard struct{ *room }

// getEvents answers GET /hub/events with the fleet and the queue as they change. A client
// that does not read is cut off; one that connects again begins with a snapshot.
func (o dashboard) getEvents(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	watcher, err := o.hub().Board.Watch(r.Context(), a.Viewer(), a.Share())
	switch {
	case errors.Is(err, view.ErrTooManyOwnPages):
		api.WriteError(w, api.Error{
			Status: http.StatusTooManyRequests, Kind: "too_many_pages", Message: "You have too many dashboards open at once",
			Details: "Close one of them.", RetryAfter: 10,
		})
		return
	case errors.Is(err, view.ErrTooManyPages):
		api.WriteError(w, api.Error{
			Status: http.StatusServiceUnavailable, Kind: "too_many_pages", Message: "Too many dashboards are open at this hub", RetryAfter: 30,
		})
		return
	case err != nil:
		o.Fail(w, r, err)
		return
	}
	defer watcher.Stop()
	out := api.WriteEvents(w)
	defer out.Close()
	if r.Method == http.MethodHead || out.Send(eventHello, o.hello(a, watcher)) != nil {
		return
	}
	beat := time.NewTicker(api.EventBeat)
	defer beat.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
			err = out.Beat()
		case change, open := <-watcher.Changes:
			if !open {
				return
			}
			event := eventChange
			if change.Whole {
				event = eventSnapshot
			}
			err = out.Send(event, change.Encoded(encodeChange))
		}
		if err != nil {
			return
		}
	}
}

// hello says who watches.
func (o dashboard) hello(a api.Requester, watcher *view.Watcher) []byte {
	join, keyed := "", false
	if watcher.SeesAll { // it is an address of the network behind the hub
		join, keyed = o.hub().Members.Joining()
	}
	return line(pyjson.NewObject(
		pyjson.Member{Key: "tenant", Value: pyjson.String(a.Tenant)},
		pyjson.Member{Key: "login", Value: pyjson.Bool(a.Login)},
		pyjson.Member{Key: "sees_all", Value: pyjson.Bool(watcher.SeesAll)},
		pyjson.Member{Key: "operator", Value: pyjson.Bool(watcher.Operator)},
		// Here, an operator may use an operator's commands.
		pyjson.Member{Key: "commands", Value: pyjson.Bool(a.Operator && a.OperatorsSite)},
		pyjson.Member{Key: "operators_site", Value: pyjson.Bool(a.OperatorsSite)},
		pyjson.Member{Key: "operators_at", Value: pyjson.String(o.hub().Settings.OperatorsAt)},
		pyjson.Member{Key: "open", Value: pyjson.Bool(o.hub().Settings.Open)},
		pyjson.Member{Key: "join", Value: pyjson.String(join)},
		pyjson.Member{Key: "join_keyed", Value: pyjson.Bool(keyed)},
		pyjson.Member{Key: "version", Value: pyjson.String(o.hub().Release)},
		pyjson.Member{Key: "now", Value: pyjson.Int(time.Now().UnixMilli())},
	))
}

// line is a value as the data of an event.
func line(v pyjson.Value) []byte { return pyjson.Strict(pyjson.Marshal(v)) }

// encodeChange writes a change.
func encodeChange(c *view.BoardChange) []byte {
	out := pyjson.NewObject()
	if rows := encodeRows(c.Instances, "name", instanceMembers); len(rows) > 0 || c.Whole {
		out.Set("instances", rows)
	}
	if len(c.GoneInstances) > 0 {
		out.Set("gone_instances", pyjson.Strings(c.GoneInstances))
	}
	if rows := encodeRows(c.Jobs, "key", jobMembers); len(rows) > 0 || c.Whole {
		out.Set("jobs", rows)
	}
	if len(c.GoneJobs) > 0 {
		out.Set("gone_jobs", pyjson.Strings(c.GoneJobs))
	}
	if c.WebUI != nil {
		out.Set("web_ui", webUIValue(*c.WebUI))
	}
	if c.Strangers != nil {
		out.Set("strangers", pyjson.String(*c.Strangers))
	}
	if n := c.Counts; n != nil {
		out.Set("counts", pyjson.NewObject(
			pyjson.Member{Key: "waiting", Value: pyjson.Int(int64(n.Waiting))},
			pyjson.Member{Key: "running", Value: pyjson.Int(int64(n.Running))},
			pyjson.Member{Key: "own_waiting", Value: pyjson.Int(int64(n.OwnWaiting))},
			pyjson.Member{Key: "own_running", Value: pyjson.Int(int64(n.OwnRunning))},
			pyjson.Member{Key: "paused", Value: pyjson.Bool(n.Paused)},
			pyjson.Member{Key: "tenant_paused", Value: pyjson.Bool(n.TenantPaused)},
		))
	}
	return line(out)
}

// encodeRows writes rows: their first member, which names them, and what is different.
func encodeRows[T comparable](rows []view.Changed[T], name string, members func(T) []pyjson.Member) pyjson.Array {
	list := make(pyjson.Array, 0, len(rows))
	for _, row := range rows {
		now, before := members(row.Now), members(row.Before)
		o := pyjson.NewObject()
		for n, m := range now {
			if m.Key == name || m.Value != before[n].Value {
				o.Set(m.Key, m.Value)
			}
		}
		list = append(list, o)
	}
	return list
}

func instanceMembers(i view.InstanceRow) []pyjson.Member {
	return []pyjson.Member{
		{Key: "name", Value: pyjson.String(i.Name)},
		{Key: "state", Value: pyjson.String(i.State)},
		{Key: "kind", Value: pyjson.String(i.Kind)},
		{Key: "gpu", Value: pyjson.String(i.GPU)},
		{Key: "version", Value: pyjson.String(i.Version)},
		{Key: "reason", Value: pyjson.String(i.Reason)},
		{Key: "fault", Value: pyjson.String(i.Fault)},
		{Key: "fault_at", Value: pyjson.Int(i.FaultAt)},
		{Key: "url", Value: pyjson.String(i.URL)},
		{Key: "agent", Value: pyjson.String(i.Agent)},
		{Key: "reserved", Value: pyjson.String(i.Reserved)},
		{Key: "vram_total", Value: pyjson.Int(i.VRAMTotal)},
		{Key: "vram_free", Value: pyjson.Int(i.VRAMFree)},
		{Key: "foreign", Value: pyjson.Int(int64(i.Foreign))},
		{Key: "load", Value: pyjson.String(i.Load)},
		{Key: "others_memory", Value: pyjson.Int(i.OthersMemory)},
		{Key: "others_use", Value: pyjson.Int(int64(i.OthersUse))},
		{Key: "restarts", Value: pyjson.Int(int64(i.Restarts))},
		{Key: "restart_at", Value: pyjson.Int(i.RestartAt)},
		{Key: "restart_error", Value: pyjson.String(i.RestartError)},
		{Key: "disk_free", Value: pyjson.Int(i.DiskFree)},
		{Key: "disk_size", Value: pyjson.Int(i.DiskSize)},
		{Key: "models", Value: pyjson.String(i.Models)},
		{Key: "job", Value: pyjson.String(i.Job)},
		{Key: "tenant", Value: pyjson.String(i.Tenant)},
		{Key: "key", Value: pyjson.String(i.Key)},
		{Key: "began", Value: pyjson.Int(i.Began)},
		{Key: "eta", Value: pyjson.Int(i.ETA)},
		{Key: "node", Value: pyjson.String(i.Node)},
		{Key: "class", Value: pyjson.String(i.Class)},
		{Key: "progress", Value: pyjson.Float(i.Progress)},
		{Key: "boot", Value: pyjson.Int(i.Boot)},
		{Key: "last_seen", Value: pyjson.Int(i.LastSeen)},
		{Key: "drained", Value: pyjson.Bool(i.Drained)},
		{Key: "aside", Value: pyjson.Bool(i.Aside)},
	}
}

func jobMembers(j view.JobRow) []pyjson.Member {
	return []pyjson.Member{
		{Key: "key", Value: pyjson.String(j.Key)},
		{Key: "id", Value: pyjson.String(j.ID)},
		{Key: "tenant", Value: pyjson.String(j.Tenant)},
		{Key: "order", Value: pyjson.String(j.Order)},
		{Key: "position", Value: place(j.Position)},
		{Key: "eta", Value: pyjson.Int(j.ETA)},
		{Key: "why", Value: pyjson.String(j.Why)},
		{Key: "priority", Value: pyjson.Int(int64(j.Priority))},
		{Key: "band", Value: pyjson.String(j.Band)},
		{Key: "paused", Value: pyjson.Bool(j.Paused)},
		{Key: "attempts", Value: pyjson.Int(int64(j.Attempts))},
		{Key: "created", Value: pyjson.Int(j.Created)},
	}
}
