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

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// inMemory is the size up to which a body is kept in memory while it
	// arrives, if there is room.
	inMemory = 1 << 20
	// chunk is read at a time as a body arrives, and loadStep when it is loaded.
	chunk    = 32 << 10
	loadStep = 256 << 10
	// valueWeight and byteWeight estimate what it takes to read a body: its
	// text, the tree of its values with all that was outgrown on the way, and
	// the copies that are made of its parts.
	valueWeight = 512
	byteWeight  = 4
)

// Class says what a body may be. All three matter: a large one may be one
// string, and a short one a million values.
type Class struct {
	// Limit is the number of bytes that a body must stay below, once it is
	// unpacked.
	Limit int64
	// Values bounds its JSON values; 0 for a body that is not read as JSON.
	Values int
}

// Body is a body that has arrived whole.
type Body struct {
	in    *Intake
	share string
	data  []byte // while it is short
	file  *os.File
	size  int64
	meter pyjson.Meter
	// buffered is what data takes of the buffers' pool.
	buffered int64
	release  func() // the memory to read it
	turn     turn
	packed   bool // it had a Content-Encoding
}

// Receive reads a body whole, without its Content-Encoding, and parses nothing.
// share is the sender. The Body must be closed. Errors: *TooLargeError,
// ErrInflated, ErrValues, ErrDeep, ErrSlow, ErrBusy, ErrBroken.
func (in *Intake) Receive(r *http.Request, share string, c Class) (*Body, error) {
	if r.ContentLength >= c.Limit {
		return nil, &TooLargeError{c.Limit, r.ContentLength}
	}
	b := &Body{in: in, share: share, turn: turn{in: in, share: share}, packed: r.Header.Get("Content-Encoding") != ""}
	err := b.fill(r, c)
	b.turn.give(err != nil)
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
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
		if err := b.add(part[:n]); err != nil {
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

// fault tells what is wrong with a body that cannot be read on.
func fault(err error) error {
	if errors.Is(err, ErrSlow) || errors.Is(err, ErrBusy) || errors.Is(err, ErrInflated) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

// add keeps the next part of the body: in memory while it is short and there is
// room, else in a file.
func (b *Body) add(part []byte) error {
	size := b.size + int64(len(part))
	if b.file == nil && size <= inMemory && b.grow(size) {
		b.data = append(b.data, part...)
		b.size = size
		return nil
	}
	if b.file == nil {
		if err := b.spill(); err != nil {
			return err
		}
	}
	if !b.in.spooled.take(b.share, int64(len(part))) {
		return ErrBusy
	}
	b.size = size
	_, err := b.file.Write(part)
	return err
}

// grow makes room in memory and reports whether there was any.
func (b *Body) grow(size int64) bool {
	if size <= b.buffered {
		return true
	}
	more := max(size, 2*b.buffered, 512)
	if !b.in.buffers.take(b.share, more-b.buffered) {
		return false
	}
	b.buffered = more
	larger := make([]byte, len(b.data), more)
	copy(larger, b.data)
	b.data = larger
	return true
}

// spill moves what has arrived to a file, which has no name: a hub that is
// killed leaves nothing behind.
func (b *Body) spill() error {
	file, err := os.CreateTemp(b.in.dir, "comfyhub-body-*")
	if err != nil {
		return fmt.Errorf("intake: %w", err)
	}
	_ = os.Remove(file.Name())
	b.file = file
	if !b.in.spooled.take(b.share, b.size) {
		b.size = 0 // none of it is on the account of the disk
		return ErrBusy
	}
	if _, err := file.Write(b.data); err != nil {
		return fmt.Errorf("intake: %w", err)
	}
	b.forget()
	return nil
}

// forget gives the buffer up.
func (b *Body) forget() {
	b.in.buffers.give(b.share, b.buffered)
	b.data, b.buffered = nil, 0
}

// Size is the number of bytes.
func (b *Body) Size() int64 { return b.size }

// Reader reads the body from its beginning, in little memory.
func (b *Body) Reader() io.Reader {
	if b.file == nil {
		return bytes.NewReader(b.data)
	}
	return io.NewSectionReader(b.file, 0, b.size)
}

// Load gives the whole body, once there is memory to read it, which stays taken
// until Close: the body's JSON may be parsed, and a few copies made of its
// parts. Errors: ErrBusy, those of ctx.
func (b *Body) Load(ctx context.Context) ([]byte, error) {
	leave, err := b.in.gate.enter(ctx, b.share, b.weight(), b.in.wait)
	if err != nil {
		return nil, err
	}
	b.release = leave
	if b.packed || b.size > unpaced {
		if err := b.turn.take(ctx); err != nil {
			return nil, err // Close gives the memory back
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
	b.data = data // the gate's from here on
	return data, nil
}

// Rest is to be called now and then by whoever works on a body that was loaded.
// It returns at once for a small body, and lets others go first where a large one
// has been worked on for a while.
func (b *Body) Rest() { b.turn.rest() }

// Refuse says that what was loaded is refused: the next large body of its sender
// waits for longer than after one that was worth the work.
func (b *Body) Refuse() { b.turn.refused = true }

// weight is the memory that reading the body takes.
func (b *Body) weight() int64 {
	return byteWeight*b.size + valueWeight*int64(b.meter.Values())
}

// drop gives the file up.
func (b *Body) drop() {
	_ = b.file.Close()
	_ = os.Remove(b.file.Name()) // where an open file could not be removed
	b.file = nil
	b.in.spooled.give(b.share, b.size)
}

// Close gives back what the body has taken.
func (b *Body) Close() {
	if b.file != nil {
		b.drop()
	}
	b.forget()
	b.turn.end()
	if b.release != nil {
		b.release()
	}
}
