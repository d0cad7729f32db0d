package files

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/comfyhub/comfyhub/internal/durable"
)

// keepName makes the names in a folder last, and those of the folders above it up to the storage's
// own, each of which may be new. Without it a power cut could take back a file that is complete on
// the disk and already mentioned in a history.
func (s *Storage) keepName(ctx context.Context, folder string) error {
	if err := s.pass(ctx, StepKeep, 0); err != nil {
		return err
	}
	for root := filepath.Clean(s.dir); strings.HasPrefix(folder, root); folder = filepath.Dir(folder) {
		err := durable.SyncFolder(folder)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
			return nil // some systems' file systems only support this for files
		}
		if err != nil || folder == root {
			return err
		}
	}
	return nil
}
