package comfyui

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Reply is the answer of an instance that accepted a prompt.
type Reply struct {
	// PromptID is the id the instance uses. Servers before 0.3.45 choose
	// their own, whatever was asked for.
	PromptID string
	// Number is the queue number as a JSON literal.
	Number string
	// NodeErrors is raw JSON; it is not empty when only some of the outputs
	// were accepted.
	NodeErrors []byte
}

// maxReply bounds the answer to a prompt: a refusal names each faulty node.
const maxReply = 32 << 20

// Submit posts a prompt; body is the JSON of POST /prompt. Errors: *[Refused]
// when the instance does not take the prompt, [ErrUnreachable] when it was not
// sent, [ErrUnclear] when it may have been queued, *[StatusError] for every
// other answer that means it was not queued.
func (c *Client) Submit(ctx context.Context, body []byte) (Reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := jsonRequest("/prompt", body)
	resp, err := c.wire.do(ctx, r)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	defer time.AfterFunc(c.wire.bodyTimeout, cancel).Stop()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusBadRequest:
		data, err := readReply(resp)
		if err != nil {
			return Reply{}, fmt.Errorf("reading a refusal: %w", err)
		}
		return Reply{}, parseRefused(resp.StatusCode, data)
	default:
		return Reply{}, &StatusError{Method: r.method, Path: r.path, Status: resp.StatusCode, Text: errorText(resp.Body)}
	}
	data, err := readReply(resp)
	if err != nil {
		return Reply{}, err
	}
	reply, ok := parseReply(data)
	if !ok {
		return Reply{}, fmt.Errorf("%w: the reply is not ComfyUI's", ErrUnclear)
	}
	return reply, nil
}

// readReply reads the answer to a prompt.
func readReply(resp *http.Response) ([]byte, error) {
	data, err := readBody(resp, maxReply)
	if err == nil && tooComplex(data, maxValues) {
		return nil, ErrTooLarge
	}
	return data, err
}

func parseReply(data []byte) (Reply, bool) {
	var reply Reply
	ok := pyjson.Members(data, func(key string, value []byte) {
		switch key {
		case "prompt_id":
			reply.PromptID = pyjson.Unquote(value)
		case "number":
			reply.Number = string(value)
		case "node_errors":
			reply.NodeErrors = value
		}
	})
	return reply, ok && reply.PromptID != ""
}

// parseRefused reads all four shapes: error as string or object, node_errors
// as list or object. A body that is none of them is kept as it is.
func parseRefused(status int, data []byte) *Refused {
	refused := &Refused{Status: status, Body: data}
	ok := pyjson.Members(data, func(key string, value []byte) {
		switch {
		case key == "node_errors":
			refused.NodeErrors = value
		case key == "error" && len(value) > 0 && value[0] == '"':
			refused.Message = pyjson.Unquote(value)
		case key == "error":
			pyjson.Members(value, func(key string, value []byte) {
				switch key {
				case "type":
					refused.Type = pyjson.Unquote(value)
				case "message":
					refused.Message = pyjson.Unquote(value)
				case "details":
					refused.Details = pyjson.Unquote(value)
				}
			})
		}
	})
	if !ok || refused.Message == "" && refused.Type == "" {
		refused.Message = string(data[:min(len(data), maxErrorText)])
	}
	return refused
}
