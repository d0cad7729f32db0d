// Package logs gives the logs of a fleet's instances to clients: as one
// terminal, in which each line has the name of its instance before it.
package logs

import (
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/stream"
)

// maxReaders bounds the clients that read the log at once.
const maxReaders = 1000

// Sockets are those of clients, see [stream.Streams].
type Sockets interface {
	Connected(stream.Key) bool
	Send(stream.Key, stream.Message)
}

// Readers are the clients that want log lines as they come. Each instance is
// subscribed once, with the hub's own socket.
type Readers struct {
	sockets Sockets
	lines   lines

	mu   sync.Mutex
	keys []stream.Key
}

// NewReaders makes Readers without any.
func NewReaders(sockets Sockets) *Readers { return &Readers{sockets: sockets} }

// Set adds or removes a reader and reports whether any is left. When there is no
// room, readers without a socket go; one that has a socket is never pushed out
// by a newer one.
func (r *Readers) Set(k stream.Key, wanted bool) (left bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = slices.DeleteFunc(r.keys, func(other stream.Key) bool { return other == k })
	if wanted && len(r.keys) >= maxReaders {
		r.keys = slices.DeleteFunc(r.keys, func(other stream.Key) bool { return !r.sockets.Connected(other) })
	}
	if wanted && len(r.keys) < maxReaders {
		r.keys = append(r.keys, k)
	}
	return len(r.keys) > 0
}

// Pass gives a message of an instance's log to the readers. Where there are
// several instances each line gets the name of its own.
func (r *Readers) Pass(instance string, frame []byte, several bool) {
	readers := r.all()
	if len(readers) == 0 {
		return
	}
	if several {
		if frame = r.lines.message(instance, frame); frame == nil {
			return
		}
	}
	for _, k := range readers {
		r.sockets.Send(k, stream.Text(frame))
	}
}

func (r *Readers) all() []stream.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.keys)
}
