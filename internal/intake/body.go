package intake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// inMemory is the size up to which a body is kept in memory while it arrives,
	// if there is room.
	inMemory = 256 << 10
	// answerInMemory is the same for an answer: it may wait for a reader for hours, and
	// outgrown buffers of many are garbage at the same time.
	answerInMemory = 64 << 10
	// chunk is how much is read at a time while a body arrives, loadStep while it
	// is loaded.
	chunk    = 8 << 10
	loadStep = 256 << 10
	// valueWeight and byteWeight estimate the memory needed to parse a body: its
	// text, the tree of its values including outgrown buffers, and the copies made
	// of its parts.
	valueWeight = 512
	byteWeight  = 4
)

// Class says how large a body may be. All three limits matter: a large body may be
// a single string, and a short one a million values.
type Class struct {
	// Limit is the number of bytes that a body must stay below once it is
	// decompressed.
	Limit int64
	// Values bounds its JSON values; 0 for a body that is not parsed as JSON.
	Values int
}

// Body is a body that has arrived completely.
type Body struct {
	in    *Intake
	share string
	held  *budget.Holder
	leave func() // gives back what is not the request's
	most  int64  // up to which size it is kept in memory
	data  []byte // while it is short
	file  *os.File
	size  int64
	meter pyjson.Meter
	// buffered and spooled are how much is taken of the budget.
	buffered, spooled int64

	release func() // releases the memory for parsing it
	turn    turn
	packed  bool // it had a Content-Encoding
}

// Receive reads a whole body, without its Content-Encoding, and parses nothing.
// share is the sender. The Body must be closed. Errors: *TooLargeError,
// ErrInflated, ErrValues, ErrDeep, ErrSlow, ErrBusy, ErrBroken.
func (in *Intake) Receive(r *http.Request, share string, c Class) (*Body, error) {
	if r.ContentLength >= c.Limit {
		return nil, &TooLargeError{c.Limit, r.ContentLength}
	}
	b := in.newBody(r.Context(), share)
	b.packed = r.Header.Get("Content-Encoding") != ""
	b.held.Relay()
	err := b.fill(r, c)
	b.turn.give(err != nil)
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (in *Intake) newBody(ctx context.Context, share string) *Body {
	b := &Body{in: in, share: share, most: inMemory, turn: turn{in: in, share: share}}
	b.held, b.leave = in.holder(ctx, share)
	return b
}

func (b *Body) fill(r *http.Request, c Class) error {
	plain, err := unpacked(r, pacedBody(r, &b.turn))
	if err != nil {
		return fault(err)
	}
	part := make([]byte, chunk)
	for {
		n, err := plain.Read(part)
		if b.size+int64(n) >= c.Limit {
			return &TooLargeError{c.Limit, b.size + int64(n)}
		}
		if err := b.add(r.Context(), part[:n]); err != nil {
			return err
		}
		if c.Values > 0 {
			_, _ = b.meter.Write(part[:n])
			if b.meter.Depth() > pyjson.MaxDepth {
				return ErrDeep
			}
			if b.meter.Values() > c.Values {
				return ErrValues
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault(err)
		}
	}
}

// fault returns the error for a body that cannot be read any further.
func fault(err error) error {
	if errors.Is(err, ErrSlow) || errors.Is(err, ErrBusy) || errors.Is(err, ErrInflated) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

// add stores the next part of the body: in memory while it is short and there is
// room, otherwise in a file.
func (b *Body) add(ctx context.Context, part []byte) error {
	size := b.size + int64(len(part))
	if b.file == nil && size <= b.most && b.grow(size) {
		b.data = append(b.data, part...)
		b.size = size
		return nil
	}
	if b.file == nil {
		if err := b.spill(ctx); err != nil {
			return err
		}
	}
	if err := b.take(ctx, int64(len(part))); err != nil {
		return err
	}
	b.size = size
	_, err := b.file.Write(part)
	return err
}

// take counts what is about to be written to the file.
func (b *Body) take(ctx context.Context, n int64) error {
	if !b.held.Await(ctx, budget.Disk, n) {
		return ErrBusy
	}
	b.spooled += n
	return nil
}

// grow reserves memory and reports whether there was enough.
func (b *Body) grow(size int64) bool {
	if size <= b.buffered {
		return true
	}
	more := max(size, 2*b.buffered, 512)
	if !b.held.TakeSpare(budget.Memory, more-b.buffered) { // there is the disk
		return false
	}
	b.buffered = more
	larger := make([]byte, len(b.data), more)
	copy(larger, b.data)
	b.data = larger
	return true
}

// spill moves what has arrived to a file. The file has no name, so that a hub that
// is killed leaves nothing behind.
func (b *Body) spill(ctx context.Context) error {
	file, err := os.CreateTemp(b.in.dir, "comfyhub-body-*")
	if err != nil {
		return fmt.Errorf("intake: %w", err)
	}
	_ = os.Remove(file.Name())
	b.file = file
	if err := b.take(ctx, b.size); err != nil {
		return err
	}
	if _, err := file.Write(b.data); err != nil {
		return fmt.Errorf("intake: %w", err)
	}
	b.forget()
	return nil
}

// forget releases the buffer.
func (b *Body) forget() {
	b.held.Give(budget.Memory, b.buffered)
	b.data, b.buffered = nil, 0
}

// Size returns the number of bytes.
func (b *Body) Size() int64 { return b.size }

// Reader reads the body from its beginning, using little memory.
func (b *Body) Reader() io.Reader {
	if b.file == nil {
		return bytes.NewReader(b.data)
	}
	return io.NewSectionReader(b.file, 0, b.size)
}

// Load returns the whole body once there is memory to parse it. The memory is held
// until Close, and suffices to parse the body's JSON and make a few copies of its
// parts. Errors: ErrBusy, those of ctx.
func (b *Body) Load(ctx context.Context) ([]byte, error) {
	leave, err := b.in.gate.enter(ctx, b.share, b.weight(), b.in.wait)
	if err != nil {
		return nil, err
	}
	b.release = leave
	if b.packed || b.size > unpaced {
		if err := b.turn.take(ctx); err != nil {
			return nil, err // Close releases the memory
		}
	}
	if b.file == nil {
		return b.data, nil
	}
	data := make([]byte, b.size)
	stored := b.Reader()
	for part := range slices.Chunk(data, loadStep) {
		if _, err := io.ReadFull(stored, part); err != nil {
			return nil, fmt.Errorf("intake: %w", err)
		}
		b.Rest()
	}
	b.drop()
	b.data = data // counted by the gate from here on
	return data, nil
}

// Rest must be called from time to time by code that works on a loaded body. It
// returns at once for a small body, and lets others go first if a large one has
// been worked on for a while.
func (b *Body) Rest() { b.turn.rest() }

// Refuse reports that the loaded body is refused: the sender's next large body
// waits longer than after a valid one.
func (b *Body) Refuse() { b.turn.refused = true }

// weight returns the memory needed to parse the body.
func (b *Body) weight() int64 {
	return byteWeight*b.size + valueWeight*int64(b.meter.Values())
}

// drop removes the file.
func (b *Body) drop() {
	_ = b.file.Close()
	_ = os.Remove(b.file.Name()) // where an open file could not be removed
	b.file = nil
	b.held.Give(budget.Disk, b.spooled)
	b.spooled = 0
}

// Close releases everything that the body uses.
func (b *Body) Close() {
	if b.file != nil {
		b.drop()
	}
	b.forget()
	b.leave()
	b.turn.end()
	if b.release != nil {
		b.release()
	}
}
