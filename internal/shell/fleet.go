package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// Instance is an instance as the hub lists it.
type Instance struct {
	Name  string `json:"name"`
	URL   string `json:"url"`
	Kind  string `json:"kind"`
	State string `json:"state"`
	// Running is the id of the prompt that runs there, empty for none and for one that is
	// none of the viewer's business.
	Running string `json:"running"`
	Version string `json:"version"`
	GPU     string `json:"gpu"`
	// VRAMTotal and VRAMFree are in bytes.
	VRAMTotal int64 `json:"vram_total"`
	VRAMFree  int64 `json:"vram_free"`
	// LastSeen is in Unix seconds, 0 for never.
	LastSeen int64    `json:"last_seen"`
	Reason   string   `json:"reason"`
	Reserved []string `json:"reserved"`
	// Restarts counts the restarts by its agent since it last went well. RestartAt is when
	// the next one is planned, in Unix seconds (0: none), and RestartError why the last one
	// failed.
	Restarts     int    `json:"restarts"`
	RestartAt    int64  `json:"restart_at"`
	RestartError string `json:"restart_error"`
}

// Stats are the fleet in numbers.
type Stats struct {
	Queued    int            `json:"queued"`
	Running   int            `json:"running"`
	Sockets   int            `json:"sockets"`
	Instances map[string]int `json:"instances"`
	// Ended counts the jobs that have ended since the queue began, nil if the viewer may
	// not know.
	Ended *int64 `json:"ended"`
	// Switches and Saved are the model switches of the last day, and those that were avoided.
	Switches int64 `json:"model_switches"`
	Saved    int64 `json:"model_switches_saved"`
	Paused   bool  `json:"paused"`
	// Strangers is why Redis and the storage do not belong together, "" if they do.
	Strangers string `json:"strangers,omitempty"`
}

// FleetJob is a job as the hub lists it.
type FleetJob struct {
	Job

	Instance string `json:"instance"`
	Tenant   string `json:"tenant"`
	Priority int    `json:"priority"`
	Band     string `json:"band"`
	Paused   bool   `json:"paused"`
	Attempts int    `json:"attempts"`
	// Finished is when it ended, in Unix seconds, 0 if it has not.
	Finished float64 `json:"finished_at"`
	// Lost says how each lost run ended.
	Lost []string `json:"lost"`
}

// Fleet is what a hub shows at one moment.
type Fleet struct {
	// From says where this was read.
	From string `json:"from"`
	// Operator means that it is everybody's, and that instances can be drained there.
	Operator  bool       `json:"operator"`
	Stats     Stats      `json:"stats"`
	Instances []Instance `json:"instances"`
	// Running and Queued are the first jobs of each kind.
	Running []FleetJob `json:"running"`
	Queued  []FleetJob `json:"queued"`
	// Spare is for operators only.
	Spare Spare `json:"scale,omitzero"`
}

// view reads a fleet: the operator's by the admin endpoint, or a user's by the hub's URL.
type view interface {
	// get decodes the answer of GET /hub/PATH or its counterpart at the admin endpoint.
	get(ctx context.Context, path string, query url.Values, v any) error
	// name says where the fleet is read, and whether as its operator.
	name() (from string, operator bool)
}

// readFleet reads a fleet, with at most so many jobs of each kind.
func readFleet(ctx context.Context, v view, jobs int) (Fleet, error) {
	var f Fleet
	f.From, f.Operator = v.name()
	if err := v.get(ctx, "stats", nil, &f.Stats); err != nil {
		return f, err
	}
	if err := v.get(ctx, "instances", nil, &f.Instances); err != nil {
		return f, err
	}
	if err := f.readSpare(ctx, v); err != nil || jobs == 0 {
		return f, err
	}
	for status, to := range map[string]*[]FleetJob{"running": &f.Running, "queued": &f.Queued} {
		query := url.Values{"status": {status}, "limit": {strconv.Itoa(jobs)}}
		if err := v.get(ctx, "jobs", query, to); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (c *Client) name() (from string, operator bool) { return c.base.String(), false }

func (c *Client) get(ctx context.Context, path string, query url.Values, v any) error {
	target := "/hub/" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	answer, err := c.answer(ctx, http.MethodGet, target, nil, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("the hub's answer: %w", err)
	}
	return nil
}

func (a *Admin) name() (from string, operator bool) { return a.Address, true }

func (a *Admin) get(ctx context.Context, path string, query url.Values, v any) error {
	return a.ask(ctx, http.MethodGet, path, query, v)
}

// either reads by the admin endpoint if a hub answers there, else by the hub's URL.
func either(ctx context.Context, admin *Admin, hub *Client) (view, error) {
	var stats Stats
	err := admin.get(ctx, "stats", nil, &stats)
	var refusal *Refusal
	switch {
	case err == nil:
		return admin, nil
	case errors.As(err, &refusal) && refusal.Status == http.StatusServiceUnavailable:
		return nil, err // it is the right one, and says what it waits for
	}
	return hub, nil
}
