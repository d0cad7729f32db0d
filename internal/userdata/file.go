package userdata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
)

// ErrExists means that a file exists and must not be replaced.
var ErrExists = errors.New("userdata: file exists")

// File is a stored file.
type File struct {
	Path     Path
	Size     int64 // bytes
	Modified time.Time
}

// Stat describes a file. For a missing one the error is fs.ErrNotExist.
func (f Folder) Stat(ctx context.Context, p Path) (File, error) {
	if p == "" {
		return File{}, fs.ErrNotExist
	}
	b, err := f.store.storage.Stat(ctx, f.fileKey(p))
	if err != nil {
		return File{}, fmt.Errorf("userdata: %w", err)
	}
	return File{Path: p, Size: b.Size, Modified: b.Modified}, nil
}

func (f Folder) has(ctx context.Context, p Path) (bool, error) {
	_, err := f.Stat(ctx, p)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Open reads length bytes from offset on, or all that follow if length is negative, of a file
// that Stat has described. The error is fs.ErrNotExist if another one has replaced it.
func (f Folder) Open(ctx context.Context, file File, offset, length int64) (io.ReadCloser, error) {
	return f.store.storage.OpenSized(ctx, f.fileKey(file.Path), file.Size, offset, length)
}

// open reads a whole file, whichever it is now.
func (f Folder) open(ctx context.Context, p Path) (io.ReadCloser, error) {
	return f.Open(ctx, File{Path: p, Size: -1}, 0, -1)
}

// Write stores a file and the folders that contain it. Errors: ErrExists if the
// file exists and must not be replaced, ErrName if a folder has its name or a file
// that of one of its folders, ErrFull if the tenant has no space left.
func (f Folder) Write(ctx context.Context, p Path, r io.Reader, overwrite bool) (File, error) {
	leave, err := f.turn(ctx)
	if err != nil {
		return File{}, err
	}
	defer leave()
	if !overwrite {
		if err := f.mustBeFree(ctx, p); err != nil {
			return File{}, err
		}
	}
	return f.write(ctx, p, r, 0)
}

// write stores a file; freed is the number of bytes that the caller deletes
// afterwards.
func (f Folder) write(ctx context.Context, p Path, r io.Reader, freed int64) (File, error) {
	quota, err := f.quota(ctx)
	if err != nil {
		return File{}, err
	}
	quota.free(freed, 0)
	former, err := f.Stat(ctx, p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := quota.take(1); err != nil {
			return File{}, err
		}
	case err != nil:
		return File{}, err
	default:
		quota.free(former.Size, 0)
	}
	if err := f.makeRoom(ctx, p, quota); err != nil {
		return File{}, err
	}
	if _, err := f.store.storage.Write(ctx, f.fileKey(p), quota.bound(r)); err != nil {
		return File{}, fmt.Errorf("userdata: %w", err)
	}
	quota.settle()
	return f.Stat(ctx, p)
}

// Move renames a file. Errors: fs.ErrNotExist, and those of Write.
func (f Folder) Move(ctx context.Context, from, to Path, overwrite bool) (File, error) {
	leave, err := f.turn(ctx)
	if err != nil {
		return File{}, err
	}
	defer leave()
	source, err := f.Stat(ctx, from)
	if err != nil {
		return File{}, err
	}
	if !overwrite {
		if err := f.mustBeFree(ctx, to); err != nil {
			return File{}, err
		}
	}
	if from == to {
		return source, nil
	}
	body, err := f.open(ctx, from)
	if err != nil {
		return File{}, fmt.Errorf("userdata: %w", err)
	}
	defer body.Close()
	moved, err := f.write(ctx, to, body, source.Size)
	if err != nil {
		return File{}, err
	}
	// Last, so that a crash in between leaves the file twice, not nowhere.
	if err := f.store.storage.Delete(ctx, f.fileKey(from)); err != nil {
		return moved, err
	}
	f.store.usage.freed(f.tenant, 0, 1)
	return moved, nil
}

// Delete removes a file; the folders that contained it stay. For a missing one the
// error is fs.ErrNotExist.
func (f Folder) Delete(ctx context.Context, p Path) error {
	leave, err := f.turn(ctx)
	if err != nil {
		return err
	}
	defer leave()
	file, err := f.Stat(ctx, p)
	if err != nil {
		return err
	}
	if err := f.store.storage.Delete(ctx, f.fileKey(p)); err != nil {
		return err
	}
	f.store.usage.freed(f.tenant, file.Size, 1)
	return nil
}

func (f Folder) mustBeFree(ctx context.Context, p Path) error {
	switch taken, err := f.has(ctx, p); {
	case err != nil:
		return err
	case taken:
		return ErrExists
	}
	return nil
}

// makeRoom creates the missing folders of a file.
func (f Folder) makeRoom(ctx context.Context, p Path, quota *quota) error {
	if p == "" {
		return ErrName
	}
	if there, err := f.hasFolder(ctx, p); err != nil || there {
		return errors.Join(err, errIf(there, ErrName))
	}
	for _, dir := range p.parents() {
		there, err := f.hasFolder(ctx, dir)
		if err != nil {
			return err
		}
		if there {
			continue
		}
		if taken, err := f.has(ctx, dir); err != nil || taken {
			return errors.Join(err, errIf(taken, ErrName))
		}
		if err := quota.take(1); err != nil {
			return err
		}
		if _, err := f.store.storage.Write(ctx, f.folderKey(dir), strings.NewReader("")); err != nil {
			return fmt.Errorf("userdata: %w", err)
		}
	}
	return nil
}

// hasFolder reports whether a folder exists; the user's own always does.
func (f Folder) hasFolder(ctx context.Context, p Path) (bool, error) {
	if p == "" {
		return true, nil
	}
	_, err := f.store.storage.Stat(ctx, f.folderKey(p))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("userdata: %w", err)
	}
	return true, nil
}

func errIf(condition bool, err error) error {
	if condition {
		return err
	}
	return nil
}
