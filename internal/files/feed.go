package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// errNotTaken says that an instance takes too little of what it is sent.
var errNotTaken = errors.New("files: it does not take an input")

// feed sends a body to an instance, and gives it up when the instance takes nothing or too little of
// it: it would hold the prompt for ever, although another may be idle. The error is
// [comfyui.ErrUnreachable] then, because the prompt itself was not sent.
func (p Patience) feed(ctx context.Context, body io.Reader, send func(context.Context, io.Reader) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	f := &fed{Reader: body, patience: p, silence: time.AfterFunc(p.Contact, func() { stop(errNotTaken) })}
	defer f.silence.Stop()
	err := send(ctx, f)
	if err != nil && errors.Is(context.Cause(ctx), errNotTaken) {
		return fmt.Errorf("%w: %w", comfyui.ErrUnreachable, errNotTaken)
	}
	return err
}

// fed is a body that an instance is sent.
type fed struct {
	io.Reader

	patience Patience
	silence  *time.Timer // runs while the instance has what was read last
	sent     int64       // bytes
	since    time.Time   // when it got that; zero before the first
	waited   time.Duration
}

// Read implements [io.Reader].
func (f *fed) Read(p []byte) (int, error) {
	f.silence.Stop() // the storage may take longer
	if !f.since.IsZero() {
		f.waited += min(time.Since(f.since), f.patience.Contact) // more means that the process slept
	}
	n, err := f.Reader.Read(p)
	f.sent += int64(n)
	left := f.patience.Contact
	if err == nil { // else the answer is next, and is waited for anyway
		left = min(left, f.patience.left(f.sent, f.waited))
	}
	f.since = time.Now()
	f.silence.Reset(left)
	return n, err
}
