package intake

import "context"

// Reserve waits for memory that is not that of a body, such as for making an
// answer out of many; release gives it back. Errors: ErrBusy, those of ctx.
func (in *Intake) Reserve(ctx context.Context, share string, size int64) (release func(), err error) {
	return in.gate.enter(ctx, share, size, in.wait)
}

// Buffer keeps an answer that is being made: in memory while it is short, else
// in a file, so that a reader who takes his time holds up no memory. It must be
// closed.
type Buffer struct{ body Body }

// NewBuffer gives an empty one; share is who it is for.
func (in *Intake) NewBuffer(share string) *Buffer {
	return &Buffer{Body{in: in, share: share}}
}

// Write implements io.Writer. Errors: ErrBusy.
func (b *Buffer) Write(p []byte) (int, error) {
	if err := b.body.add(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Take ends the writing and gives what was written.
func (b *Buffer) Take() *Body { return &b.body }
