package hubapi

import "context"

// Explanation is why a job waits, or where it is.
type Explanation struct {
	// State is queued, running, done, failed or cancelled.
	State string `json:"state"`
	// Position is the place in the queue from 0, nil for a job that is not waiting.
	Position *int `json:"position"`
	Attempts int  `json:"attempts"`
	// Reason is in the hub's words.
	Reason string `json:"reason"`
	// Instances are those of the fleet; empty for a job that is not waiting.
	Instances []Candidate `json:"instances"`
}

// Candidate is an instance and whether it could run the job.
type Candidate struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	CanRun bool   `json:"can_run"`
	Why    string `json:"why"`
	// Lacks are the node classes and models that the instance lacks.
	Lacks []string `json:"lacks"`
}

// Explain asks why a job is waiting. A hub that explains nothing also returns
// ErrNotFound.
func (c *Client) Explain(ctx context.Context, tenant, id string) (Explanation, error) {
	var e Explanation
	err := c.post(ctx, "/hub/explain", tenant, map[string]string{"prompt_id": id}, &e)
	return e, err
}
