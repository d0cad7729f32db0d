package comfyui

import (
	"context"
	"encoding/json"
)

// KeptPath is where an agent is told which output files of an instance the hub keeps; the
// instance's name follows. Like [RestartPath] it is out of reach of a hub's clients.
const KeptPath = "/kept/"

// MaxKept bounds the files of one message to KeptPath.
const MaxKept = 1000

// KeptFile is an output file of an instance of which the hub has a copy of its own.
type KeptFile struct {
	Subfolder string `json:"subfolder,omitempty"`
	Filename  string `json:"filename"`
	// ETag is what the instance's /view said: when the file was written, and its size.
	ETag string `json:"etag"`
	// SHA256 is the hash of the content, in hex.
	SHA256 string `json:"sha256"`
}

// KeptFiles is the body of a message to KeptPath.
type KeptFiles struct {
	Files []KeptFile `json:"files"`
}

// Kept tells the agent of the instance which files the hub keeps, at most MaxKept. Agents
// that delete none, and instances without an agent, answer with a *[StatusError].
func (c *Client) Kept(ctx context.Context, kept []KeptFile) error {
	body, err := json.Marshal(KeptFiles{kept})
	if err != nil {
		return err
	}
	return c.wire.postAgent(ctx, KeptPath, body)
}
