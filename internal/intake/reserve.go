package intake

import "context"

// Reserve waits for memory that is not for a body, such as for building an answer
// from many; release releases it. Errors: ErrBusy, those of ctx.
func (in *Intake) Reserve(ctx context.Context, share string, size int64) (release func(), err error) {
	return in.gate.enter(ctx, share, size, in.wait)
}

// Buffer stores an answer while it is being built: in memory while it is short,
// otherwise in a file, so that a slow reader does not hold memory. It must be
// closed.
type Buffer struct{ body *Body }

// NewBuffer returns an empty Buffer; share is the receiver of the answer.
func (in *Intake) NewBuffer(share string) *Buffer {
	b := in.newBody(context.Background(), share)
	b.most = answerInMemory
	return &Buffer{b}
}

// Write implements io.Writer. Errors: ErrBusy.
func (b *Buffer) Write(p []byte) (int, error) {
	if err := b.body.add(context.Background(), p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Take ends the writing and returns what was written.
func (b *Buffer) Take() *Body { return b.body }
