package hubapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// Job is what the hub knows of a prompt.
type Job struct {
	ID string `json:"id"`
	// Status is queued, running, done, failed or cancelled.
	Status string `json:"status"`
	// Position is the place in the queue from 0, nil for a job that is not waiting.
	Position *int `json:"position"`
	// ETA is in seconds, nil if the hub gives none.
	ETA      *float64 `json:"eta"`
	Instance string   `json:"instance"`
	Attempts int      `json:"attempts"`
	// Error is why the job failed, or why it is waiting.
	Error    string   `json:"error"`
	Started  *float64 `json:"started_at"`
	Finished *float64 `json:"finished_at"`
}

// Ended reports whether the job will not change any more.
func (j Job) Ended() bool {
	return j.Status == "done" || j.Status == "failed" || j.Status == "cancelled"
}

// Left returns how long it is until the job ends, 0 if unknown.
func (j Job) Left() time.Duration {
	if j.ETA == nil || !(*j.ETA > 0 && *j.ETA < maxETA) {
		return 0
	}
	return time.Duration(*j.ETA * float64(time.Second))
}

// Took returns how long the job ran, 0 if unknown.
func (j Job) Took() time.Duration {
	if j.Started == nil || j.Finished == nil {
		return 0
	}
	return max(0, time.Duration((*j.Finished-*j.Started)*float64(time.Second)))
}

// Job returns one job.
func (c *Client) Job(ctx context.Context, tenant, id string) (Job, error) {
	var j Job
	err := c.get(ctx, "/hub/jobs/"+url.PathEscape(id), tenant, &j)
	return j, err
}

// Cancel ends a job wherever it is. A job that has ended, or is unknown, is not an
// error.
func (c *Client) Cancel(ctx context.Context, tenant, id string) error {
	err := c.post(ctx, "/hub/jobs/"+url.PathEscape(id)+"/cancel", tenant, nil, nil)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Result is what a job produced.
type Result struct {
	// Files are its outputs in the order of the record.
	Files []comfyui.FileRef
	// Texts are its outputs that are strings, in the same order.
	Texts []string
	// Failure is the message of the error that ended it, "" if none did.
	Failure string
}

// maxTexts bounds how many texts of a job are returned.
const maxTexts = 20

// Result reads the history of a job; ErrNotFound if there is none (yet).
func (c *Client) Result(ctx context.Context, tenant, id string) (Result, error) {
	var all map[string]json.RawMessage
	if err := c.get(ctx, "/history/"+url.PathEscape(id), tenant, &all); err != nil {
		return Result{}, err
	}
	raw, ok := all[id]
	if !ok {
		return Result{}, ErrNotFound
	}
	entry, ok := comfyui.ParseEntry(raw)
	if !ok {
		return Result{}, fmt.Errorf("the history of %s is no record", id)
	}
	var result Result
	seen := map[comfyui.FileRef]bool{}
	for _, span := range comfyui.Files(entry.Outputs) {
		if !seen[span.Ref] {
			seen[span.Ref] = true
			result.Files = append(result.Files, span.Ref)
		}
	}
	result.Texts = comfyui.Texts(entry.Outputs, maxTexts)
	if entry.End == comfyui.TypeExecutionError {
		var data struct {
			Message string `json:"exception_message"`
		}
		_ = json.Unmarshal(entry.EndData, &data)
		result.Failure = data.Message
		result.Failure = cmp.Or(result.Failure, "unknown error")
	}
	return result, nil
}

// Stats is the fleet in a few numbers.
type Stats struct {
	Queued    int            `json:"queued"`
	Running   int            `json:"running"`
	Instances map[string]int `json:"instances"`
}

// Stats returns them.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	err := c.get(ctx, "/hub/stats", "", &s)
	return s, err
}

// ObjectInfo reads the node classes of the fleet, raw.
func (c *Client) ObjectInfo(ctx context.Context) ([]byte, error) {
	var raw []byte
	err := c.get(ctx, "/object_info", "", &raw)
	return raw, err
}

// ObjectInfoOf reads one node class of the fleet, raw: {} if no instance has it.
func (c *Client) ObjectInfoOf(ctx context.Context, class string) ([]byte, error) {
	var raw []byte
	err := c.get(ctx, "/object_info/"+url.PathEscape(class), "", &raw)
	return raw, err
}

// Graph reads the graph of a job from its history, raw; ErrNotFound if it is not there
// (any more).
func (c *Client) Graph(ctx context.Context, tenant, id string) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := c.get(ctx, "/history/"+url.PathEscape(id), tenant, &all); err != nil {
		return nil, err
	}
	entry, ok := comfyui.ParseEntry(all[id])
	if !ok || len(entry.Graph) == 0 {
		return nil, ErrNotFound
	}
	return entry.Graph, nil
}

// GPU returns what an instance computes on, "" if the hub does not say.
func (c *Client) GPU(ctx context.Context, instance string) (string, error) {
	var list []struct{ Name, GPU string }
	if err := c.get(ctx, "/hub/instances", "", &list); err != nil {
		return "", err
	}
	for _, one := range list {
		if one.Name == instance {
			return one.GPU, nil
		}
	}
	return "", nil
}
