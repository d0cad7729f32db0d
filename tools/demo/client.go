package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"net/http"
	"net/url"
	"strings"

	"github.com/coder/websocket"
	"github.com/google/uuid"
)

// maxFrame bounds a frame of the event stream, in bytes. Previews are images.
const maxFrame = 64 << 20

// picture is an image that a prompt made.
type picture struct {
	name          string
	bytes         []byte
	width, height int // pixels
}

// graph is a workflow in ComfyUI's API format: nodes by id.
type graph map[string]struct {
	ClassType string         `json:"class_type"`
	Inputs    map[string]any `json:"inputs"`
}

// event is a message of ComfyUI's event stream.
type event struct {
	Type string `json:"type"`
	Data struct {
		PromptID string  `json:"prompt_id"`
		Node     *string `json:"node"`
		Value    float64 `json:"value"`
		Max      float64 `json:"max"`
		Message  string  `json:"exception_message"`
	} `json:"data"`
}

// generate does what ComfyUI's own example client does, and knows nothing of
// hubs: listen on the WebSocket, post the prompt, wait for its end, and fetch
// what the history says that it made.
func generate(ctx context.Context, server string, workflow []byte, show *progress) (picture, error) {
	var nodes graph
	if err := json.Unmarshal(workflow, &nodes); err != nil {
		return picture{}, err
	}
	client := uuid.NewString()
	socket, _, err := websocket.Dial(ctx, server+"/ws?clientId="+client, nil)
	if err != nil {
		return picture{}, err
	}
	defer socket.CloseNow()
	socket.SetReadLimit(maxFrame)

	id, err := post(ctx, server, client, workflow)
	if err != nil {
		return picture{}, err
	}
	show.line("queued", "prompt "+id)
	if err := follow(ctx, socket, id, nodes, show); err != nil {
		return picture{}, err
	}
	p, err := fetch(ctx, server, id)
	if err == nil {
		err = p.check(nodes)
	}
	return p, err
}

// post queues the workflow and returns the prompt's id.
func post(ctx context.Context, server, client string, workflow []byte) (string, error) {
	body, err := json.Marshal(map[string]any{"prompt": json.RawMessage(workflow), "client_id": client})
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server+"/prompt", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := do(r)
	if err != nil {
		return "", err
	}
	var accepted struct {
		PromptID string `json:"prompt_id"`
	}
	if err := json.Unmarshal(answer, &accepted); err != nil {
		return "", err
	}
	if accepted.PromptID == "" {
		return "", fmt.Errorf("no prompt_id in %s", answer)
	}
	return accepted.PromptID, nil
}

// follow reads events until the prompt has ended.
func follow(ctx context.Context, socket *websocket.Conn, id string, nodes graph, show *progress) error {
	previews := 0
	for {
		kind, frame, err := socket.Read(ctx)
		if err != nil {
			return fmt.Errorf("reading events: %w", err)
		}
		if kind == websocket.MessageBinary {
			previews++
			continue
		}
		var e event
		if err := json.Unmarshal(frame, &e); err != nil {
			return fmt.Errorf("reading events: %w", err)
		}
		if e.Data.PromptID != id {
			continue
		}
		switch e.Type {
		case "execution_start":
			show.line("started", "on an idle instance")
		case "progress":
			if e.Data.Node != nil {
				show.step(nodes[*e.Data.Node].ClassType, int(e.Data.Value), int(e.Data.Max), previews)
			}
		case "execution_error":
			return fmt.Errorf("the prompt failed: %s", e.Data.Message)
		case "execution_interrupted":
			return errors.New("the prompt was interrupted")
		case "executing":
			if e.Data.Node == nil {
				show.line("done", fmt.Sprintf("%d previews on the way", previews))
				return nil
			}
		}
	}
}

// fetch returns the first image of a prompt that has ended.
func fetch(ctx context.Context, server, id string) (picture, error) {
	body, err := get(ctx, server+"/history/"+url.PathEscape(id))
	if err != nil {
		return picture{}, err
	}
	var history map[string]struct {
		Outputs map[string]struct {
			Images []struct{ Filename, Subfolder, Type string }
		}
	}
	if err := json.Unmarshal(body, &history); err != nil {
		return picture{}, err
	}
	for _, output := range history[id].Outputs {
		for _, image := range output.Images {
			query := url.Values{"filename": {image.Filename}, "subfolder": {image.Subfolder}, "type": {image.Type}}
			content, err := get(ctx, server+"/view?"+query.Encode())
			return picture{name: image.Filename, bytes: content}, err
		}
	}
	return picture{}, fmt.Errorf("no image in the history of prompt %s", id)
}

// check decodes the picture, notes its size, and compares that with the size
// that the workflow asks for.
func (p *picture) check(nodes graph) error {
	image, err := png.Decode(bytes.NewReader(p.bytes))
	if err != nil {
		return fmt.Errorf("%s is no PNG: %w", p.name, err)
	}
	p.width, p.height = image.Bounds().Dx(), image.Bounds().Dy()
	for _, node := range nodes {
		if !strings.HasPrefix(node.ClassType, "EmptyLatent") {
			continue
		}
		if node.Inputs["width"] != float64(p.width) || node.Inputs["height"] != float64(p.height) {
			return fmt.Errorf("%s is %d x %d, the workflow asks for %v x %v", p.name, p.width, p.height, node.Inputs["width"], node.Inputs["height"])
		}
	}
	return nil
}
