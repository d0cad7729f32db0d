package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile makes a file that only its owner reads have a content, in place of what it had. After a
// crash at any moment it has the one or the other, and after a power cut too.
func WriteFile(path string, content []byte) error {
	fresh := path + ".new"
	f, err := os.OpenFile(fresh, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		_ = os.Remove(fresh)
		return err
	}
	return SyncFolder(filepath.Dir(path))
}
