package engine

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/comfyhub/comfyhub/internal/durable"
)

// damagedSuffix ends the name of the copy that a repair leaves.
const damagedSuffix = ".damaged"

// damagedError says where a journal is damaged, so that it cannot be opened.
type damagedError struct {
	kept  int64
	cause error
}

func (e *damagedError) Error() string {
	return fmt.Sprintf("damaged after byte %d, which the disk must have lost; "+
		"to go on with what stands before: comfyhub repair-journal <data folder>: %v", e.kept, e.cause)
}

func (e *damagedError) Unwrap() error { return e.cause }

// Repair cuts a journal that is damaged after its last good command, and keeps a copy of
// the whole as queue.aof.damaged. It returns how many bytes stay and how many go; a journal
// that is well loses none. Errors: ErrLocked while a hub uses the folder.
func Repair(dir string) (kept, lost int64, err error) {
	path := filepath.Join(dir, journalFile)
	if _, err := os.Stat(path); err != nil {
		return 0, 0, err
	}
	held, err := lockFolder(dir)
	if err != nil {
		return 0, 0, err
	}
	defer unlockFolder(held)
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	kept, err = restore(f, newKeyspace(time.Now), slog.New(slog.DiscardHandler))
	var damaged *damagedError
	if !errors.As(err, &damaged) {
		return kept, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	evidence, err := os.OpenFile(path+damagedSuffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, 0, err
	}
	_, err = io.Copy(evidence, io.NewSectionReader(f, 0, info.Size()))
	if err = errors.Join(err, evidence.Sync(), evidence.Close(), durable.SyncFolder(dir)); err != nil {
		return 0, 0, err
	}
	if err := errors.Join(f.Truncate(damaged.kept), f.Sync()); err != nil {
		return 0, 0, err
	}
	return damaged.kept, info.Size() - damaged.kept, nil
}
