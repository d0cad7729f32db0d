package files

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// spool is an upload on the local disk, complete and hashed. Names and keys
// depend on the content, so nothing can be stored before its last byte is here.
type spool struct {
	file   *os.File
	size   int64
	sha256 string
}

// newSpool reads all of r; more than limit bytes are ErrTooLarge, a limit of 0
// is none.
func newSpool(dir string, r io.Reader, limit int64) (*spool, error) {
	return fillSpool(dir, func(w io.Writer) (int64, error) {
		if limit <= 0 {
			return io.Copy(w, r)
		}
		n, err := io.Copy(w, io.LimitReader(r, limit+1))
		if err == nil && n > limit {
			err = ErrTooLarge
		}
		return n, err
	})
}

// fillSpool makes a spool of what fill writes.
func fillSpool(dir string, fill func(io.Writer) (int64, error)) (*spool, error) {
	file, err := os.CreateTemp(dir, "comfyhub-upload-*")
	if err != nil {
		return nil, fmt.Errorf("%w: spool: %w", ErrStorage, err)
	}
	s := &spool{file: file}
	// Unlinked at once where the system allows it, so that a killed hub leaves
	// nothing behind; Close tries again where it does not.
	_ = os.Remove(file.Name())
	hash := sha256.New()
	if s.size, err = fill(io.MultiWriter(hash, file)); err != nil {
		s.Close()
		return nil, err
	}
	s.sha256 = hex.EncodeToString(hash.Sum(nil))
	return s, nil
}

// reader reads the whole upload, again at each call.
func (s *spool) reader() io.Reader { return io.NewSectionReader(s.file, 0, s.size) }

func (s *spool) Close() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}
