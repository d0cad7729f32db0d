package shell

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	pathpkg "path"
	"path/filepath"
	"strings"
	"unicode"
)

// Folder is where the files of jobs are stored. Nothing outside of it is written, whatever
// the files are called and wherever links in it lead.
type Folder struct {
	root  *os.Root
	force bool
}

// OpenFolder opens a folder, which is made if it is not there and must be closed. With
// force, files that are there are replaced.
func OpenFolder(name string, force bool) (*Folder, error) {
	if err := os.MkdirAll(name, 0o777); err != nil {
		return nil, usagef("--out: %w", err)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, usagef("--out: %w", err)
	}
	return &Folder{root, force}, nil
}

// Close closes the folder.
func (d *Folder) Close() { d.root.Close() }

// place is where a file is stored, from the folder. A name that a hub or a job has
// chosen to do harm is an error: one that leads out of the folder, or makes hidden files,
// which programs read.
func place(f File) (string, error) {
	parts := strings.FieldsFunc(f.Subfolder, func(r rune) bool { return r == '/' || r == '\\' })
	if len(parts) > 32 {
		return "", fmt.Errorf("%.100q: is in too many folders", f.Subfolder)
	}
	for _, part := range append(parts, f.Filename) {
		if part == "" || strings.HasPrefix(part, ".") || strings.ContainsAny(part, `/\:`) || len(part) > 255 ||
			strings.ContainsFunc(part, unicode.IsControl) || !filepath.IsLocal(part) {
			return "", fmt.Errorf("%.100q: not a name that is stored", part)
		}
	}
	return pathpkg.Join(append(parts, f.Filename)...), nil
}

// Store stores a file and returns its path.
func (d *Folder) Store(f File, open func() (io.ReadCloser, error)) (string, error) {
	name, err := place(f)
	if err != nil {
		return "", err
	}
	stored := filepath.Join(d.root.Name(), filepath.FromSlash(name))
	if _, err := d.root.Lstat(name); err == nil && !d.force {
		return "", fmt.Errorf("%s: is there already; --force replaces it", printable(stored))
	}
	if folder := pathpkg.Dir(name); folder != "." {
		if err := d.root.MkdirAll(folder, 0o777); err != nil {
			return "", err
		}
	}
	from, err := open()
	if err != nil {
		return "", fmt.Errorf("%s: %w", printable(stored), err)
	}
	defer from.Close()
	return stored, d.write(name, from)
}

// write writes a file. Without force its name is taken first, so that of two programs only
// one gets it; with force it takes the place of the old one once it is whole.
func (d *Folder) write(name string, from io.Reader) (err error) {
	target := name
	if d.force {
		target += ".part"
		if err := d.root.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	file, err := d.root.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err == nil && d.force {
		err = d.root.Rename(target, name)
	}
	if err != nil {
		_ = d.root.Remove(target)
	}
	return err
}
