package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image/jpeg"
	"slices"

	"github.com/coder/websocket"
)

// socket is a guest's WebSocket. It checks each message against the order in
// which one ComfyUI sends them.
type socket struct {
	g        *guest
	conn     *websocket.Conn
	metadata bool // pictures with metadata were asked for
	live     bool // prompts may interleave
	again    bool // prompts that have ended may be sent once more
	messages int
	open     map[string]*sequence
	// begun are the prompts whose sequences have begun on this socket.
	begun []string
}

// sequence is what has arrived for one prompt so far.
type sequence struct {
	node     string // that executes
	end      string // the message that ended it
	executed []string
	results  int
}

func (g *guest) dial(ctx context.Context, query string, metadata bool) (*socket, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, g.url+"/ws?clientId="+g.id+query, nil)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(-1)
	g.tally.sockets.Add(1)
	s := &socket{g: g, conn: conn, metadata: metadata, open: map[string]*sequence{}}
	if metadata {
		err = conn.Write(ctx, websocket.MessageText, []byte(`{"type": "feature_flags", "data": {"supports_preview_metadata": true}}`))
	}
	return s, err
}

func (s *socket) close() { _ = s.conn.Close(websocket.StatusNormalClosure, "") }

// until reads messages until done. A socket that is silent for that long is
// stuck: a status comes at least every 9 s.
func (s *socket) until(ctx context.Context, done func() bool) error {
	for !done() {
		if err := s.next(ctx); err != nil {
			return fmt.Errorf("after %d messages: %w", s.messages, err)
		}
	}
	return nil
}

func (s *socket) next(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	kind, data, err := s.conn.Read(ctx)
	if err != nil {
		return err
	}
	s.messages++
	s.g.tally.messages.Add(1)
	if kind == websocket.MessageBinary {
		err = s.picture(data)
	} else {
		err = s.text(data)
	}
	if err != nil {
		return fmt.Errorf("%w: %.300q", err, data)
	}
	return nil
}

type wireMessage struct {
	Type string
	Data struct {
		PromptID *string `json:"prompt_id"`
		Node     *string
		Output   struct{ Images []savedImage }
	}
}

func (s *socket) text(data []byte) error {
	var m wireMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	switch m.Type {
	case "status", "feature_flags":
		return nil
	}
	if m.Data.PromptID == nil {
		return errors.New("a message of no prompt")
	}
	id := *m.Data.PromptID
	p := s.g.prompts[id]
	if p == nil {
		return errors.New("a foreign message")
	}
	if m.Type == "execution_start" {
		return s.begin(id)
	}
	q := s.open[id]
	if q == nil {
		return errors.New("a message outside of a sequence")
	}
	if q.end != "" && (m.Type != "executing" || m.Data.Node != nil) {
		return errors.New("a message after the end")
	}
	return s.within(p, q, m)
}

// begin opens the sequence of a prompt: one at a time, and each once, unless it is to fail: after
// several of these at one server, the hub tries the next one at another before it believes the error.
func (s *socket) begin(id string) error {
	switch {
	case s.open[id] != nil && s.g.prompts[id].fail != "none":
		s.open[id] = &sequence{}
		return nil
	case s.open[id] != nil:
		return errors.New("a second start")
	case len(s.open) > 0 && !s.live:
		return errors.New("a start while another prompt is shown")
	case slices.Contains(s.begun, id):
		return errors.New("a prompt twice on one socket")
	case s.g.prompts[id].ends > 0 && !s.again:
		return errors.New("a prompt that has ended")
	}
	s.open[id] = &sequence{}
	s.begun = append(s.begun, id)
	return nil
}

func (s *socket) within(p *prompt, q *sequence, m wireMessage) error {
	switch m.Type {
	case "executing":
		if m.Data.Node == nil {
			return s.finish(p, q)
		}
		q.node = *m.Data.Node
		p.working = p.working || q.node == workNode
	case "progress":
		if m.Data.Node == nil || *m.Data.Node != q.node {
			return fmt.Errorf("progress of a node while %s executes", q.node)
		}
	case "executed":
		if m.Data.Node == nil || slices.Contains(q.executed, *m.Data.Node) {
			return errors.New("executed twice")
		}
		q.executed = append(q.executed, *m.Data.Node)
		for _, i := range m.Data.Output.Images {
			// The file must be the right one as soon as the message names it.
			if err := s.g.verifyImage(context.Background(), p, i); err != nil {
				return err
			}
		}
	case "execution_success", "execution_error", "execution_interrupted":
		if m.Type != p.want {
			return fmt.Errorf("not the end that was due: %s", p.want)
		}
		q.end = m.Type
	case "execution_cached", "progress_state":
	default:
		return errors.New("an unknown message")
	}
	return nil
}

// finish closes a sequence: it must have been complete.
func (s *socket) finish(p *prompt, q *sequence) error {
	switch {
	case q.end == "":
		return errors.New("executing null without an end")
	case q.end == "execution_success" && p.bySocket && q.results != 1:
		return fmt.Errorf("%d results", q.results)
	case q.end == "execution_success" && !p.bySocket && !slices.Contains(q.executed, saveNode):
		return errors.New("an end without the result")
	}
	delete(s.open, p.id)
	p.ends++
	return nil
}

// The binary messages: a picture, and a picture with metadata.
const (
	plainPicture    = 1
	metadataPicture = 4
	formatPNG       = 2
)

func (s *socket) picture(data []byte) error {
	if len(data) < 8 {
		return errors.New("a short picture")
	}
	event, word, body := binary.BigEndian.Uint32(data), binary.BigEndian.Uint32(data[4:]), data[8:]
	if s.metadata != (event == metadataPicture) {
		return fmt.Errorf("a picture of type %d", event)
	}
	if event == plainPicture {
		if len(s.open) != 1 && !s.live {
			return errors.New("a picture of nobody")
		}
		for id, q := range s.open { // with several open it may be any one's
			return s.content(s.g.prompts[id], q, word == formatPNG, body)
		}
		return errors.New("a picture outside of a sequence")
	}
	var about struct {
		PromptID string `json:"prompt_id"`
		Type     string `json:"image_type"`
	}
	if uint64(word) > uint64(len(body)) {
		return errors.New("metadata longer than the message")
	}
	if err := json.Unmarshal(body[:word], &about); err != nil {
		return err
	}
	q := s.open[about.PromptID]
	if q == nil {
		return errors.New("a foreign picture")
	}
	return s.content(s.g.prompts[about.PromptID], q, about.Type == "image/png", body[word:])
}

// content looks at a picture: a preview, or, as PNG, a result.
func (s *socket) content(p *prompt, q *sequence, result bool, data []byte) error {
	if q.end != "" {
		return errors.New("a picture after the end")
	}
	if !result {
		_, err := jpeg.DecodeConfig(bytes.NewReader(data))
		return err
	}
	q.results++
	s.g.tally.pictures.Add(1)
	return p.owns(data)
}
