package files

import (
	"errors"
	"fmt"
	"net/http"
)

var (
	// ErrNotFound says that no file has this name.
	ErrNotFound = errors.New("files: no such file")
	// ErrGone says that a file has a name but its bytes are nowhere: its instance lost it before it
	// was copied, or the storage lost it.
	ErrGone = errors.New("files: the content is gone")
	// ErrInstance says that an instance could not be asked for a file, or broke off in the middle.
	// It may pass.
	ErrInstance = errors.New("files: instance")
	// ErrChanged says that an instance now has other bytes under the name.
	ErrChanged = errors.New("files: the file was replaced on its instance")
	// ErrNotShared says that hubs on one Redis have different storages.
	ErrNotShared = errors.New("files: the hubs of this Redis use different storages")
	// ErrStorage says that the storage failed: full, not writable, away.
	ErrStorage = errors.New("files: storage failed")
	// ErrTooLarge says that an upload is larger than allowed.
	ErrTooLarge = errors.New("files: upload too large")
)

// FullError says that a tenant cannot upload any more.
type FullError struct {
	// Limit is "inputs" (bytes) or "input_files".
	Limit string
}

func (e *FullError) Error() string { return "files: the tenant has reached its limit of " + e.Limit }

// StatusError is a refusal that ComfyUI answers with a bare status: 400 for a name that leads out
// of its folder, 500 for what makes its handler fail.
type StatusError struct{ Status int }

func (e *StatusError) Error() string {
	return fmt.Sprintf("files: refused with %d %s", e.Status, http.StatusText(e.Status))
}
