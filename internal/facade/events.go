package facade

import (
	"context"
	"encoding/binary"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// outbox is how many frames may wait for a client; one that is further behind is
	// disconnected.
	outbox = 1000
	// sendTimeout bounds the sending of a frame.
	sendTimeout = 30 * time.Second
	// maxSockets bounds the clients: hubs have two connections each.
	maxSockets = 100
	// maxInbound bounds a frame of a client, in bytes. They say nothing that matters.
	maxInbound = 64 << 10
)

// socket is a client's connection.
type socket struct {
	conn   *websocket.Conn
	frames chan frame
}

type frame struct {
	kind websocket.MessageType
	data []byte
}

func (s *Server) getSocket(w http.ResponseWriter, r *http.Request) {
	sid := r.URL.Query().Get("clientId")
	if sid == "" {
		sid = uuid.NewString()
	}
	conn, one := s.accept(w, r, sid)
	if one == nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.work.Go(func() { one.write(ctx) })
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			break
		}
	}
	cancel()
	s.mu.Lock()
	if s.sockets[sid] == one {
		delete(s.sockets, sid)
	}
	s.mu.Unlock()
	_ = conn.CloseNow()
}

// accept opens a socket. Prompts wait for that: a client that has been told that its socket is
// open misses no message of what it posts then.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, sid string) (*websocket.Conn, *socket) {
	s.opening.RLock()
	defer s.opening.RUnlock()
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return nil, nil
	}
	conn.SetReadLimit(maxInbound)
	one := &socket{conn, make(chan frame, outbox)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.sockets) >= maxSockets {
		_ = conn.CloseNow()
		return nil, nil
	}
	if old := s.sockets[sid]; old != nil {
		_ = old.conn.CloseNow()
	}
	s.sockets[sid] = one
	first := dict("type", pyjson.String("status"), "data", s.statusData())
	first.Object("data").Set("sid", pyjson.String(sid))
	one.push(websocket.MessageText, pyjson.Marshal(first))
	return conn, one
}

// write sends frames until ctx ends.
func (o *socket) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-o.frames:
			sending, cancel := context.WithTimeout(ctx, sendTimeout)
			err := o.conn.Write(sending, f.kind, f.data)
			cancel()
			if err != nil {
				_ = o.conn.CloseNow()
				return
			}
		}
	}
}

// push sends a frame, or ends a connection that is too far behind.
func (o *socket) push(kind websocket.MessageType, data []byte) {
	select {
	case o.frames <- frame{kind, data}:
	default:
		_ = o.conn.CloseNow()
	}
}

// statusData is what a status message says. The caller holds the lock.
func (s *Server) statusData() *pyjson.Object {
	return dict("status", dict("exec_info", dict("queue_remaining", pyjson.Int(int64(s.remaining())))))
}

// status tells all clients how much runs and waits. The caller holds the lock.
func (s *Server) status() {
	text := pyjson.Marshal(dict("type", pyjson.String("status"), "data", s.statusData()))
	for _, one := range s.sockets {
		one.push(websocket.MessageText, text)
	}
}

// send sends a message of a run to its client. The caller holds the lock.
func (s *Server) send(run *running, kind string, pairs ...any) *pyjson.Object {
	data := dict(pairs...)
	data.Set("prompt_id", pyjson.String(run.ID))
	if one := s.sockets[run.client]; one != nil {
		one.push(websocket.MessageText, pyjson.Marshal(dict("type", pyjson.String(kind), "data", data)))
	}
	return data
}

// tell is send for a message that the history keeps. The caller holds the lock.
func (s *Server) tell(run *running, kind string, pairs ...any) {
	pairs = append(pairs, "timestamp", pyjson.Int(time.Now().UnixMilli()))
	run.messages = append(run.messages, pyjson.Array{pyjson.String(kind), s.send(run, kind, pairs...)})
}

// progress tells how far a node of a run is.
func (s *Server) progress(r *Run, node string, value, most float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := r.state
	if s.running != run || run.Class(node) == "" {
		return
	}
	if run.node != node {
		run.finish()
		run.node = node
		s.send(run, "executing", "node", pyjson.String(node), "display_node", pyjson.String(node))
	}
	run.note(node, value, most, "running")
	s.send(run, "progress_state", "nodes", run.progress)
	s.send(run, "progress", "value", pyjson.Float(value), "max", pyjson.Float(most), "node", pyjson.String(node))
}

// note keeps how far a node is.
func (r *running) note(node string, value, most float64, state string) {
	r.progress.Set(node, dict(
		"value", pyjson.Float(value), "max", pyjson.Float(most), "state", pyjson.String(state), "node_id", pyjson.String(node),
		"prompt_id", pyjson.String(r.ID), "display_node_id", pyjson.String(node), "parent_node_id", pyjson.Null{}, "real_node_id", pyjson.String(node)))
}

// finish notes that the node before the next one has finished.
func (r *running) finish() {
	if r.node == "" {
		return
	}
	r.note(r.node, 1, 1, "finished")
}

// The head of a binary frame with a picture: what it is, and its format.
const (
	previewImage = 1
	formatJPEG   = 1
)

// preview shows a picture of a run.
func (s *Server) preview(r *Run, jpeg []byte) {
	data := binary.BigEndian.AppendUint32(nil, previewImage)
	data = binary.BigEndian.AppendUint32(data, formatJPEG)
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.sockets[r.client]; one != nil && s.running == r.state {
		one.push(websocket.MessageBinary, append(data, jpeg...))
	}
}
