package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// keepName makes the names in a folder last, and those of the folders above it up to the
// storage's own, each of which may be new. Without it a power cut could take back a file that
// is whole on the disk, and that a history already speaks of.
func (s *Storage) keepName(ctx context.Context, folder string) error {
	if err := s.pass(ctx, StepKeep, 0); err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil // it has no such thing
	}
	root := filepath.Clean(s.dir)
	for ; strings.HasPrefix(folder, root); folder = filepath.Dir(folder) {
		if err := syncFolder(folder); err != nil {
			return err
		}
		if folder == root {
			break
		}
	}
	return nil
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	err = folder.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil // some file systems of other machines know this for files only
	}
	return err
}
