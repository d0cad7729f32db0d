package roster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
)

const (
	// folder of the storage has a blob for each hash, zstd.
	folder = "hub/classes/"
	// maxBody is the size of the largest object_info, in bytes.
	maxBody = 96 << 20
	// maxPending bounds the compressed bodies that wait to be written, in bytes.
	maxPending = 64 << 20
	// keepEvery is the least time between two bodies of one instance: lists of files
	// change all the time, and an old one is nearly as good.
	keepEvery = 10 * time.Minute
	// sweepEvery is how often blobs are removed that no instance has any more and
	// that are older than a day.
	sweepEvery = time.Hour
)

// errDamaged means that a blob is not what its name says.
var errDamaged = errors.New("roster: a damaged body")

// shelf has bodies of object_info by their hash.
type shelf struct {
	storage *files.Storage
	library *catalog.Library

	// reading lets one body at a time be in memory. The storage may hang, and whoever waits
	// has a time of their own.
	reading *semaphore.Weighted

	mu sync.Mutex
	// infos are those that instances have, parsed; nil for one that is not there.
	infos map[string]*catalog.Info
	// pending are compressed bodies that wait to be written.
	pending map[string][]byte
	waiting int // bytes of pending
	// stored are the hashes that are in the storage, put when an instance's last
	// body was taken.
	stored map[string]bool
	taken  map[string]time.Time
}

func newShelf(storage *files.Storage, library *catalog.Library) *shelf {
	return &shelf{
		storage: storage, library: library, reading: semaphore.NewWeighted(1),
		infos: map[string]*catalog.Info{}, pending: map[string][]byte{}, stored: map[string]bool{}, taken: map[string]time.Time{},
	}
}

// put takes a body in, and reports whether it did, or has it.
func (s *shelf) put(instance, hash string, body []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored[hash] || s.pending[hash] != nil {
		return true
	}
	now := time.Now()
	if len(body) > maxBody || now.Sub(s.taken[instance]) < keepEvery {
		return false
	}
	s.mu.Unlock()
	packed, err := pack(body)
	s.mu.Lock()
	if err != nil || s.waiting+len(packed) > maxPending {
		return false
	}
	if s.pending[hash] == nil {
		s.pending[hash] = packed
		s.waiting += len(packed)
	}
	s.taken[instance] = now
	return true
}

// packWindow is how far back a body repeats itself, in bytes; the encoder takes a little more. By
// default it would be eight times as much.
const packWindow = 1 << 20

func pack(body []byte) ([]byte, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(packWindow))
	if err != nil {
		return nil, err
	}
	packed := w.EncodeAll(body, nil)
	return packed, w.Close()
}

// write writes the pending bodies.
func (s *shelf) write(ctx context.Context) error {
	for {
		var hash string
		var packed []byte
		s.mu.Lock()
		for hash, packed = range s.pending {
			break
		}
		s.mu.Unlock()
		if packed == nil {
			return nil
		}
		if _, err := s.storage.Write(ctx, folder+hash, bytes.NewReader(packed)); err != nil {
			return err
		}
		s.mu.Lock()
		s.stored[hash] = true
		delete(s.infos, hash) // it may have been missing
		delete(s.pending, hash)
		s.waiting -= len(packed)
		s.mu.Unlock()
	}
}

// get returns the parsed body of a hash, nil if there is none.
func (s *shelf) get(ctx context.Context, hash string) (*catalog.Info, error) {
	if info, known := s.find(hash); known {
		return info, nil
	}
	if err := s.reading.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer s.reading.Release(1)
	if info, known := s.find(hash); known {
		return info, nil
	}
	info, err := s.read(ctx, hash)
	if err != nil && !errors.Is(err, files.ErrGone) && !errors.Is(err, errDamaged) {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.infos[hash] = info
	if info != nil {
		s.stored[hash] = true
	}
	return info, nil
}

func (s *shelf) find(hash string) (info *catalog.Info, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, known = s.infos[hash]
	return info, known
}

func (s *shelf) read(ctx context.Context, hash string) (*catalog.Info, error) {
	if hash == "" || hash != path.Base(hash) {
		return nil, files.ErrGone
	}
	blob, err := s.storage.Open(ctx, folder+hash, 0, -1)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	r, err := zstd.NewReader(blob, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if errors.Is(err, files.ErrStorage) || ctx.Err() != nil {
		return nil, fmt.Errorf("roster: %s: %w", hash, err)
	}
	if comfyui.HashObjectInfo(body) != hash {
		return nil, errDamaged
	}
	return s.library.Parse(body)
}

// retain forgets what is not wanted, and what was not there: it may be there soon.
func (s *shelf) retain(wanted map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, info := range s.infos {
		if info == nil || !wanted[hash] {
			delete(s.infos, hash)
		}
	}
	for hash := range s.stored {
		if !wanted[hash] && s.pending[hash] == nil {
			delete(s.stored, hash)
		}
	}
	if len(s.taken) > maxInstances {
		clear(s.taken)
	}
}

// sweep removes blobs that are not wanted and older than a day.
func (s *shelf) sweep(ctx context.Context, wanted map[string]bool) error {
	now, err := s.storage.Now(ctx)
	if err != nil {
		return err
	}
	var old []string
	err = s.storage.List(ctx, folder, func(b files.Blob) error {
		if hash := path.Base(b.Key); !wanted[hash] && now.Sub(b.Modified) > rememberFor {
			old = append(old, hash)
		}
		return nil
	})
	for _, hash := range old {
		s.mu.Lock()
		busy := s.pending[hash] != nil || s.infos[hash] != nil
		delete(s.stored, hash)
		s.mu.Unlock()
		if !busy && err == nil {
			err = s.storage.Delete(ctx, folder+hash)
		}
	}
	return err
}
