package system

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// dark is how long a storage is away that has lost power.
const dark = 2 * time.Second

// lapse is when a disk has last lost what it had said it had synced.
type lapse struct {
	mu sync.Mutex
	at time.Time
}

func (l *lapse) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = time.Now()
}

// since reports whether anything that was written since a time may be lost.
func (l *lapse) since(t time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.Before(l.at)
}

// Lie makes the disk say from now on that it has synced what it has only in its memory. The function
// it returns is a loss of power: what was written since then is lost or damaged, what was deleted
// is back, and the disk is away for a moment.
func (d *Disk) Lie() (losePower func()) {
	platter := d.w.folder("platter")
	d.copyTo(platter)
	return func() {
		d.Set(DiskState{Err: syscall.EIO})
		d.forget(platter)
		d.lapse.note()
		require.NoError(d.w.t, os.RemoveAll(platter))
		<-time.After(dark)
		d.Set(DiskState{})
	}
}

// copyTo copies all files, but for those that go meanwhile.
func (d *Disk) copyTo(folder string) {
	for path, content := range d.files(d.w.folder("storage")) {
		to := filepath.Join(folder, path)
		require.NoError(d.w.t, os.MkdirAll(filepath.Dir(to), 0o700))
		require.NoError(d.w.t, os.WriteFile(to, content, 0o600))
	}
}

// files are all files of a folder.
func (d *Disk) files(folder string) map[string][]byte {
	all := map[string][]byte{}
	root := os.DirFS(folder)
	require.NoError(d.w.t, fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			var content []byte
			if content, err = fs.ReadFile(root, path); err == nil {
				all[path] = content
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}))
	return all
}

// forget makes the storage what a disk has kept whose platter has had less. Each file that is newer
// has one of the fates that power cuts have for files.
func (d *Disk) forget(platter string) {
	t, storage := d.w.t, d.w.folder("storage")
	kept := d.files(platter)
	for path, content := range d.files(storage) {
		if before, old := kept[path]; old && bytes.Equal(before, content) {
			continue
		}
		at := filepath.Join(storage, path)
		switch d.fates++; d.fates % 5 {
		case 0: // it has been written after all
		case 1:
			_ = os.Remove(at) // a temporary file may be gone
		case 2:
			require.NoError(t, os.WriteFile(at, nil, 0o600))
		case 3:
			require.NoError(t, os.WriteFile(at, content[:len(content)/2], 0o600))
		case 4:
			require.NoError(t, os.WriteFile(at, make([]byte, len(content)), 0o600))
		}
	}
	for path, content := range kept {
		at := filepath.Join(storage, path)
		if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
			require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
			require.NoError(t, os.WriteFile(at, content, 0o600))
		}
	}
}
