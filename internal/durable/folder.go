// Package durable has what makes a change to a file system outlive a power cut.
package durable

import (
	"os"
	"runtime"
)

// SyncFolder makes the names in a folder last, as File.Sync does the bytes of a file. On
// Windows, which has no such thing, it does nothing.
func SyncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
