package files

import (
	"errors"
	"io"
)

// headerStep is how much of a file is read at a time if its header may be anywhere in it, in bytes:
// headers are short, and each read may be a request to the storage.
const headerStep = 16 << 10

// headerReader reads the header of a picture, from the beginning or at any place.
type headerReader struct {
	sourceReader

	open func(offset, length int64) (io.ReadCloser, error)
	at   int64 // where the last step began
	step []byte
}

// ReadAt implements io.ReaderAt.
func (h *headerReader) ReadAt(p []byte, off int64) (int, error) {
	if off < h.at || off+int64(len(p)) > h.at+int64(len(h.step)) {
		if err := h.readStep(off, max(len(p), headerStep)); err != nil {
			h.err = err
			return 0, err
		}
	}
	n := copy(p, h.step[min(off-h.at, int64(len(h.step))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *headerReader) readStep(off int64, length int) error {
	body, err := h.open(off, int64(length))
	if err != nil {
		return err
	}
	defer body.Close()
	step := make([]byte, length)
	n, err := io.ReadFull(body, step)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	h.at, h.step = off, step[:n]
	return nil
}
