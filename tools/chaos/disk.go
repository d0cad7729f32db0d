package main

import (
	"context"
	"errors"
	"os"
	"time"
)

// diskSize is the size of the disk of a stage. It is in memory, and takes up only what is
// stored: every picture a page, half a million in all.
const diskSize = 2 << 30

// disk is a file system for all that hubs store: their data folders and the
// storage that they share. Where no file system can be mounted it is an ordinary
// folder, which no fault fills.
type disk struct {
	path string
	// folder says why it is an ordinary folder; nil if it is a file system.
	folder error
}

// newDisk makes a disk in an empty folder.
func newDisk(path string) (*disk, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	return &disk{path, mount(path)}, nil
}

func (d *disk) close() {
	if d != nil && d.folder == nil {
		_ = unmount(d.path)
	}
}

// fill leaves no space.
func (d *disk) fill() error { return shrink(d.path) }

// free makes space again.
func (d *disk) free() error { return resize(d.path, diskSize) }

// diskKinds returns the faults of the disk.
func diskKinds() []kind {
	return []kind{
		{
			name: "break-storage", shortest: time.Second, longest: 10 * time.Second, targets: one, at: only(storageName),
			strike: func(s *stage, _ int) error { return s.breakStorage() },
			heal:   func(_ context.Context, s *stage, _ int) error { return s.mendStorage() },
		},
		{
			name: "full-storage", shortest: time.Second, longest: 10 * time.Second, at: only(storageName),
			targets: func(s *stage) int {
				if s.disk == nil || s.disk.folder != nil {
					return 0
				}
				return 1
			},
			strike: func(s *stage, _ int) error { return s.disk.fill() },
			heal:   func(_ context.Context, s *stage, _ int) error { return s.disk.free() },
		},
	}
}

// breakStorage puts a file where the folder of the storage was: nothing can be
// read or written, as with a disk that has vanished.
func (s *stage) breakStorage() error {
	if err := os.Rename(s.storage, s.storage+".away"); err != nil {
		return err
	}
	return os.WriteFile(s.storage, nil, 0o600)
}

func (s *stage) mendStorage() error {
	return errors.Join(os.Remove(s.storage), os.Rename(s.storage+".away", s.storage))
}
