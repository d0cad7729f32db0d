package files

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// watched keeps checking the storage of a store until the test ends.
func watched(t *testing.T, s *Store) {
	t.Helper()
	require.NoError(t, s.sharing().Check(t.Context(), "hub"))
	s.storage.Health().trial = 1 // until the first check has been made
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		s.storage.Health().Watch(ctx, func() *slog.Logger { return slog.New(slog.DiscardHandler) }, func(error) {})
	})
	t.Cleanup(func() { stop(); done.Wait() })
}

// faultyStore is an object store that fails at will.
type faultyStore struct {
	next  http.Handler
	fault atomic.Pointer[http.HandlerFunc]
}

func (f *faultyStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if fault := f.fault.Load(); fault != nil {
		(*fault)(w, r)
		return
	}
	f.next.ServeHTTP(w, r)
}

// newFaultyStore returns an object store and its location.
func newFaultyStore(t *testing.T) (f *faultyStore, location string) {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("bucket"))
	f = &faultyStore{next: gofakes3.New(backend).Server()}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return f, "s3://bucket?endpoint=" + srv.URL
}

// refuses answers the way an object store does that takes nothing more. It reads part of what it is
// sent.
func refuses(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = io.CopyN(io.Discard, r.Body, 3)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, `<Error><Code>QuotaExceeded</Code><Message>full</Message></Error>`)
}

// However a storage fails, it is found sick, the output of a finished run is kept until it works
// again, and nobody ever sees part of a file.
func TestStorageFailsAndWorksAgain(t *testing.T) {
	inFolder := func(fail, mend func(t *testing.T, dir string)) func(*testing.T) (string, func(), func()) {
		return func(t *testing.T) (string, func(), func()) {
			dir := filepath.Join(t.TempDir(), "storage")
			return dir, func() { fail(t, dir) }, func() { mend(t, dir) }
		}
	}
	inStore := func(fault http.HandlerFunc) func(*testing.T) (string, func(), func()) {
		return func(t *testing.T) (string, func(), func()) {
			f, location := newFaultyStore(t)
			healed := make(chan struct{})
			held := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fault(w, r.WithContext(context.WithValue(r.Context(), healedKey{}, healed)))
			})
			return location, func() { f.fault.Store(&held) }, func() { f.fault.Store(nil); close(healed) }
		}
	}
	away := func(t *testing.T, dir string) { require.NoError(t, os.Rename(dir, dir+".away")) }
	back := func(t *testing.T, dir string) {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Rename(dir+".away", dir))
	}
	beside.Cases(t, map[string]func(t *testing.T) (location string, fail, mend func()){
		"a folder takes no outputs": inFolder(func(t *testing.T, dir string) {
			// Not even root can write into a file as if it were a folder.
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "output")))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "output"), nil, 0o600))
		}, func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "output"))) }),
		"a folder is gone": inFolder(away, back),
		"a folder is unmounted": inFolder(func(t *testing.T, dir string) {
			away(t, dir)
			require.NoError(t, os.Mkdir(dir, 0o700))
		}, back),
		"another folder is mounted": inFolder(func(t *testing.T, dir string) {
			away(t, dir)
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, markKey), []byte("another"), 0o600))
		}, back),
		"an object store is full": inStore(refuses),
		"an object store hangs": inStore(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Value(healedKey{}).(chan struct{}):
			case <-r.Context().Done():
			}
			panic(http.ErrAbortHandler)
		}),
	}, func(t *testing.T, start func(t *testing.T) (location string, fail, mend func())) {
		location, fail, mend := start(t)
		s, i := newStoreAt(t, redistest.Embedded(t), location), newInstance()
		s.storage.Health().within = 2 * time.Second
		watched(t, s)
		c := newCollector(t, s, i)
		transfer := NewTransfer(s, c, nil, slog.New(slog.DiscardHandler))
		require.Eventually(t, func() bool { return s.storage.Health().trialsLeft() == 0 }, time.Minute, time.Millisecond, "the first look")
		require.NoError(t, s.storage.Health().Err())
		ref := allotted(t, s, i, "x_00001_.png", "picture")
		fail()
		copied := make(chan error, 1)
		go func() { copied <- transfer.copy(t.Context(), tenant, ref, Entry{}, nil) }()
		s.storage.Health().doubtful(0) // a hanging one would only be found by the next check, in ten seconds
		require.Eventually(t, func() bool { return s.storage.Health().Err() != nil }, time.Minute, time.Millisecond)
		require.ErrorIs(t, s.storage.Health().Err(), ErrStorage)
		require.False(t, must(s.Resolve(t.Context(), tenant, ref)).Stored())
		require.Empty(t, copied)
		mend()
		select {
		case err := <-copied:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			require.Fail(t, "the output is not copied though the storage works again")
		}
		require.Eventually(t, func() bool { return s.storage.Health().Err() == nil }, time.Minute, time.Millisecond)
		require.Zero(t, s.storage.Health().Kept())
		require.Equal(t, "picture", s.mustRead(t, ref))
	})
}

type healedKey struct{}

// trialsLeft returns how many bytes a check still has to write.
func (h *Health) trialsLeft() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trial + h.tried
}

// A storage that comes back while a hub is finding out what is wrong has lost no file.
func TestStorageThatComesBackHasLostNoFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "storage")
	s := newStoreAt(t, redistest.Embedded(t), dir)
	ref := s.mustUpload(t, input("a.png"), "bytes")
	e := must(s.Resolve(t.Context(), tenant, ref))
	require.NoError(t, s.sharing().Check(t.Context(), "hub"))
	for n := range 300 {
		require.NoError(t, os.Rename(dir, dir+".away"))
		back := make(chan error, 1)
		go func() {
			for range n * 10 { // at a different moment each time
				runtime.Gosched()
			}
			back <- os.Rename(dir+".away", dir)
		}()
		r, err := s.Open(t.Context(), e, 0, -1)
		require.NoError(t, <-back)
		if err == nil {
			require.NoError(t, r.Close())
			continue
		}
		require.NotErrorIs(t, err, ErrGone)
	}
}

// A missing file is gone, but a file in a missing storage is not.
func TestMissingStorageIsNoMissingFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "storage")
	s := newStoreAt(t, redistest.Embedded(t), dir)
	ref := s.mustUpload(t, input("a.png"), "bytes")
	e := must(s.Resolve(t.Context(), tenant, ref))
	require.NoError(t, s.sharing().Check(t.Context(), "hub"))
	_, err := s.storage.Stat(t.Context(), "nothing")
	require.ErrorIs(t, err, ErrGone)
	require.NoError(t, os.Rename(dir, dir+".away"))
	for _, empty := range []bool{false, true} {
		if empty {
			require.NoError(t, os.Mkdir(dir, 0o700))
		}
		_, err := s.Open(t.Context(), e, 0, -1)
		require.ErrorIs(t, err, ErrStorage)
		require.NotErrorIs(t, err, ErrGone)
		_, err = s.storage.Write(t.Context(), "content/new", strings.NewReader("lost below the mount"))
		require.ErrorIs(t, err, ErrStorage)
		require.ErrorIs(t, s.sharing().Check(t.Context(), "hub"), ErrStorage, "it gets no new mark")
		require.Empty(t, must(filepath.Glob(filepath.Join(dir, "*"))), "nothing is written in its place")
	}
}

// A storage that refuses one file for good and takes others does not stop the hub, and the file's
// run is not kept for ever.
func TestStorageRefusesOneFile(t *testing.T) {
	t.Parallel()
	f, location := newFaultyStore(t)
	large := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.ContentLength == int64(len("a terabyte")) {
			refuses(w, r)
			return
		}
		f.next.ServeHTTP(w, r)
	})
	f.fault.Store(&large)
	s, i := newStoreAt(t, redistest.Embedded(t), location), newInstance()
	transfer := NewTransfer(s, newCollector(t, s, i), nil, slog.New(slog.DiscardHandler))
	transfer.maxRefused = 2
	ref := allotted(t, s, i, "x_00001_.png", "a terabyte")
	require.ErrorIs(t, transfer.copy(t.Context(), tenant, ref, Entry{}, nil), ErrStorage)
	require.Zero(t, s.storage.Health().Kept())
	require.NoError(t, s.storage.Health().try(t.Context(), 1))
	require.NoError(t, transfer.copy(t.Context(), tenant, allotted(t, s, i, "x_00002_.png", "picture"), Entry{}, nil))
}

// A storage that keeps many finished runs waiting is sick, whatever a check says: every further run
// would have to wait as well.
func TestManyKeptOutputs(t *testing.T) {
	s := parallelStore(t).storage.Health()
	s.keep(maxKept - 1)
	require.NoError(t, s.Err())
	s.keep(1)
	require.ErrorIs(t, s.Err(), ErrStorage)
	s.keep(-1)
	require.NoError(t, s.Err())
}
