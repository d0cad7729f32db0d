package facade

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// swept is the age at which no process can still be using the folder of a facade.
const swept = 24 * time.Hour

// Folders is the folder in which each facade has one for its files.
type Folders string

// Make makes the folder of a facade.
func (f Folders) Make() (string, error) {
	err := os.MkdirAll(string(f), 0o700)
	if err == nil {
		var dir string
		if dir, err = os.MkdirTemp(string(f), ""); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("facade: %w", err)
}

// Sweep removes what killed processes have left behind.
func (f Folders) Sweep() {
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return // there is none
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > swept {
			_ = os.RemoveAll(filepath.Join(string(f), entry.Name()))
		}
	}
}
