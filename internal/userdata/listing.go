package userdata

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// List returns the files of a folder, with recurse also those of its subfolders,
// sorted by path. As with ComfyUI's pattern, files whose name, or whose folder
// below dir, begins with a dot are left out. Paths are relative to dir. For a
// missing folder the error is fs.ErrNotExist.
func (f Folder) List(ctx context.Context, dir Path, recurse bool) ([]File, error) {
	if there, err := f.hasFolder(ctx, dir); err != nil || !there {
		return nil, notThere(err)
	}
	var files []File
	err := f.eachFile(ctx, dir, func(file File) {
		file.Path = file.Path.under(dir)
		if isHidden(file.Path) || !recurse && strings.Contains(string(file.Path), "/") {
			return
		}
		files = append(files, file)
	})
	return files, err
}

// Entry is a line of a recursive listing.
type Entry struct {
	File
	Directory bool
}

// Walk returns everything in a folder at any depth, hidden or not: first folders,
// then files, both sorted by lower-case name. Paths are relative to the user's
// folder. For a missing folder the error is fs.ErrNotExist, for a file ErrName.
func (f Folder) Walk(ctx context.Context, dir Path) ([]Entry, error) {
	if there, err := f.hasFolder(ctx, dir); err != nil || !there {
		if taken, _ := f.has(ctx, dir); taken {
			return nil, ErrName
		}
		return nil, notThere(err)
	}
	var entries []Entry
	prefix := f.prefix + "d/"
	if dir != "" {
		prefix = strings.TrimSuffix(f.folderKey(dir), "=")
	}
	err := f.store.storage.List(ctx, prefix, func(b Blob) error {
		if p := f.pathOfMark(b.Key); p != dir {
			entries = append(entries, Entry{File: File{Path: p}, Directory: true})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("userdata: %w", err)
	}
	err = f.eachFile(ctx, dir, func(file File) { entries = append(entries, Entry{File: file}) })
	slices.SortStableFunc(entries, func(a, b Entry) int {
		if a.Directory != b.Directory {
			return cmp.Compare(rank(a.Directory), rank(b.Directory))
		}
		return strings.Compare(strings.ToLower(a.Path.Name()), strings.ToLower(b.Path.Name()))
	})
	return entries, err
}

func rank(directory bool) int {
	if directory {
		return 0
	}
	return 1
}

// eachFile calls each for every file in or below a folder, by key.
func (f Folder) eachFile(ctx context.Context, dir Path, each func(File)) error {
	prefix := f.prefix + "f/"
	start := prefix
	if dir != "" {
		start += string(dir) + "/"
	}
	err := f.store.storage.List(ctx, start, func(b Blob) error {
		p := Path(strings.TrimPrefix(b.Key, prefix))
		if !isTemporary(p.Name()) {
			each(File{Path: p, Size: b.Size, Modified: b.Modified})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("userdata: %w", err)
	}
	return nil
}

func isHidden(p Path) bool {
	return strings.HasPrefix(string(p), ".") || strings.Contains(string(p), "/.")
}

func notThere(err error) error {
	if err != nil {
		return err
	}
	return fs.ErrNotExist
}
