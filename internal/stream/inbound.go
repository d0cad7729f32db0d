package stream

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/coder/websocket"

	"github.com/comfyhub/comfyhub/internal/budget"
)

const (
	// readLimit is the largest message a client may send; ComfyUI also closes with
	// 1009 beyond it.
	readLimit = 4 << 20
	// keptMessage is how much of a message is kept, in bytes. The only message that counts is a
	// client's feature_flags, which take some hundred.
	keptMessage = 16 << 10
	// inboundStep is how much of a message is read at a time.
	inboundStep = 512
	// messageTime is how long a message may take to arrive. Clients send each as a whole.
	messageTime = time.Minute
)

// inbound reads what a client sends. It keeps nothing of a message that does not count, and counts
// what it keeps beforehand, so that a client with many sockets and unfinished messages takes up
// next to nothing.
type inbound struct {
	conn   *websocket.Conn
	budget *budget.Budget
	share  string
	late   func() // called when a message takes too long
	part   [inboundStep]byte
}

// next reads a message. The result is nil if the message is not wanted, is not text, or is longer
// than any that counts.
func (in *inbound) next(ctx context.Context, wanted bool) ([]byte, error) {
	kind, message, err := in.conn.Reader(ctx)
	if err != nil {
		return nil, err
	}
	late := time.AfterFunc(messageTime, in.late)
	defer late.Stop()
	if !wanted || kind != websocket.MessageText {
		return nil, in.skip(message)
	}
	held := in.budget.Open(in.share, in.late)
	defer held.Close()
	var text []byte
	for {
		held.Wait()
		n, err := message.Read(in.part[:])
		held.Go()
		if len(text)+n > keptMessage || !held.Take(budget.Memory, int64(2*n)) { // the buffer doubles when it grows
			held.Close()
			return nil, in.skip(message)
		}
		text = append(text, in.part[:n]...)
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// skip reads the rest of a message and keeps none of it.
func (in *inbound) skip(message io.Reader) error {
	for {
		_, err := message.Read(in.part[:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// read reads the client's messages until the socket ends. As in ComfyUI, only the
// first JSON object counts.
func (w *socket) read(ctx context.Context) error {
	for {
		message, err := w.inbound.next(ctx, !w.flags.settled)
		if err != nil {
			return err
		}
		if message != nil {
			w.negotiate(message)
		}
	}
}
