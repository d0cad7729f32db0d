package metrics

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/panics"
)

const (
	// lookEvery is how often the space of a disk is read.
	lookEvery = 10 * time.Second
	// spaceLasts is how long it is believed: a file system whose server is away does not
	// answer.
	spaceLasts = time.Minute
)

// Disk is the file system of a folder.
type Disk struct {
	folder, path string
	look         panics.Group // nobody waits for it: it may hang

	mu         sync.Mutex
	free, size uint64
	read       time.Time
}

// NewDisk returns the file system of the folder at a path. Its metrics call the folder by
// the given name.
func NewDisk(folder, path string) *Disk { return &Disk{folder: folder, path: path} }

// Folder is the name of the folder.
func (d *Disk) Folder() string { return d.folder }

// Space returns how much unprivileged users may still write and the whole size, in bytes;
// not ok if that is not known.
func (d *Disk) Space() (free, size uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free, d.size, d.size > 0 && time.Since(d.read) < spaceLasts
}

// scarce is the share of a disk that should be free.
const scarce = 0.1

// Scarce reports whether less of the disk is left than should be.
func (d *Disk) Scarce() bool {
	free, size, ok := d.Space()
	return ok && float64(free) < scarce*float64(size)
}

// reserve is how much is kept free from what arrives, in bytes; a tenth of a small disk.
const reserve = 1 << 30

// Room returns how much may arrive now.
func (d *Disk) Room() int64 {
	free, size, ok := d.Space()
	if !ok {
		return math.MaxInt64 / 2 // unknown
	}
	return int64(free) - min(reserve, int64(size/10))
}

// Watch reads the space now and then, until ctx ends. It does not wait.
func (d *Disk) Watch(ctx context.Context, log *slog.Logger) {
	d.look.Go(log, "reading the space of a disk", func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			d.update()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

func (d *Disk) update() {
	free, size, err := space(d.path)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free, d.size, d.read = free, size, time.Now()
}
