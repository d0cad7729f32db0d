package stream

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"
)

// Errors of [Streams.Serve] that come before anything was written to the
// client: the caller answers.
var (
	// ErrFull says that MaxSockets sockets are open.
	ErrFull = errors.New("stream: too many sockets")
	// ErrClosed says that the streams are shut down.
	ErrClosed = errors.New("stream: closed")
)

// Key names a stream: clients of different tenants may use one client id.
type Key struct {
	Tenant string
	// Client is the client id; empty means no stream at all.
	Client string
}

// Ident is who opens a socket.
type Ident struct {
	Tenant string
	// Client is the clientId of the query; empty mints one.
	Client string
	// Caller is whose jobs `status` counts.
	Caller string
	// Live asks for interleaved events: nothing is held.
	Live bool
}

// Options configure [New]. The zero value of each field means its default.
type Options struct {
	// ReplayWindow is how long a client may be away and still be sent what it
	// missed. Default: 60 s.
	ReplayWindow time.Duration
	// KeepAlive is the longest silence of a socket. Default: 9 s, because
	// clients reconnect after 10 s.
	KeepAlive time.Duration
	// StatusInterval is the shortest time between two status frames of a
	// socket, ends of its own prompts apart. Default: 100 ms.
	StatusInterval time.Duration
	// HoldBytes bounds what is kept in memory for one client. Default: 16 MiB.
	HoldBytes int64
	// SocketBytes bounds what waits to be written to one socket; less than
	// HoldBytes is raised to it, so that a replay fits. Default: 32 MiB.
	SocketBytes int64
	// SpillBytes is how many bytes of results are kept in memory for one
	// client before further ones go to a file. Default: 4 MiB.
	SpillBytes int64
	// SpillDir is the folder for such files. Default: the system's.
	SpillDir string
	// MaxSockets bounds the open sockets. Default: 10000.
	MaxSockets int
	// Features gives the server's feature flags as a JSON object, asked once
	// a socket. Default: supports_preview_metadata and a max_upload_size of
	// 100 MiB, as ComfyUI has them.
	Features func() json.RawMessage
	// Count is how many jobs of a caller are queued or running. Default: 0.
	Count func(ctx context.Context, caller string) (int, error)
	// Delivered is told when a client has confirmed the whole sequence of a
	// prompt. It is called without locks and may block a little.
	Delivered func(k Key, promptID string)
	// Logger takes log lines. Default: none.
	Logger *slog.Logger
}

// Streams are the event streams of all clients. It is safe for use by
// several goroutines.
type Streams struct{ o Options }

// New makes an empty set of streams. Clients that were connected to an earlier
// hub are taken to have left now: their replay window begins.
func New(o Options) *Streams { return &Streams{o: o} }

// SetLimits replaces ReplayWindow and MaxSockets, as a reload may. Zero values
// mean the defaults.
func (s *Streams) SetLimits(replayWindow time.Duration, maxSockets int) {}

// Close ends all sockets with a close frame 1001 (going away) and waits for
// them until ctx ends; then they are cut. Later sockets are refused.
func (s *Streams) Close(ctx context.Context) error { return nil }

// Serve upgrades a request to a WebSocket and blocks until it ends. `events=live`
// in the query has the effect of Ident.Live. The Origin is the caller's to check.
// ErrFull and ErrClosed come before anything was written; after any other error
// there is nothing left to answer.
func (s *Streams) Serve(w http.ResponseWriter, r *http.Request, id Ident) error { return ErrClosed }

// Run is the sequence of one run of a prompt. All its methods are safe on a
// run that is over: they do nothing.
type Run struct{}

// Begin opens the sequence of a run that began to execute; its execution_start
// is the first Send. Each Begin must be followed by End or Lose, or the stream
// of the client stands still: `defer run.Lose()` is right, as it does nothing
// after End. The same prompt and fence give the same run again. A key without
// a client gives a run that drops everything.
func (s *Streams) Begin(k Key, promptID string, fence int64) *Run { return &Run{} }

// Send adds a message of the run.
func (r *Run) Send(m Message) {}

// End closes the sequence: the given end messages (execution_success, _error or
// _interrupted), then status, then executing null. It must be called only when
// the job is off /queue and in /history.
func (r *Run) End(end ...Message) {}

// Lose gives up the stream: the run was lost. A later Begin of the prompt
// starts a complete new sequence.
func (r *Run) Lose() {}

// Ended adds the complete sequence of a prompt that ended without a run here:
// refused by the instance, never runnable, or known from history only. The
// messages go from execution_start to the end message; status and executing
// null follow by themselves.
func (s *Streams) Ended(k Key, promptID string, msgs ...Message) {}

// Posted tells that a prompt was accepted. It starts the replay window of a
// client whose socket opens later than its POST.
func (s *Streams) Posted(k Key, promptID string) {}

// Replay sends the messages of an ended prompt again, because the same prompt
// was posted again. It reports whether they are (or will be) sent; if not,
// they are no longer known and the caller may build them from history, see
// [Streams.Ended].
func (s *Streams) Replay(k Key, promptID string) bool { return false }

// StatusChanged tells that the count of these callers may have changed; no
// caller at all means that of everyone.
func (s *Streams) StatusChanged(callers ...string) {}

// Showing is the running prompt whose messages the client is being shown.
func (s *Streams) Showing(k Key) (promptID string, ok bool) { return "", false }

// Broadcast sends a message that belongs to no run to the client's socket; it
// is never held, and dropped when there is no socket.
func (s *Streams) Broadcast(k Key, m Message) {}

// Sockets is the number of open sockets.
func (s *Streams) Sockets() int { return 0 }
