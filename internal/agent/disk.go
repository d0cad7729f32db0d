package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

const (
	// diskEvery is the pause between two looks at a disk, and diskLasts how long one is
	// believed: a file system whose server is away does not answer.
	diskEvery, diskLasts = 10 * time.Second, time.Minute
	// defaultReserve is how much of a disk must be free for its servers to get jobs.
	defaultReserve = 1 << 30
	// maxDisks bounds the folders that are looked at.
	maxDisks = 64
)

// room is the space of a disk, in bytes.
type room struct{ free, size int64 }

// disks are those that have the output and temporary files of servers. The zero value has
// none.
type disks struct {
	// reserve is how much must be free, in bytes.
	reserve int64
	space   func(folder string) (room, error)

	mu      sync.Mutex
	folders map[string]*diskLook
}

// diskLook is the last look at the disk of a folder.
type diskLook struct {
	room
	at   time.Time
	full bool
	busy bool
}

// of returns the fullest disk of some folders, and whether one is full. known is false if
// nothing is known of any. A folder is looked at from the first time that it is asked for.
func (d *disks) of(folders []string) (fullest room, full, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, folder := range folders {
		look := d.folders[folder]
		if look == nil {
			if d.folders == nil {
				d.folders = map[string]*diskLook{}
			}
			if len(d.folders) < maxDisks {
				d.folders[folder] = &diskLook{}
			}
			continue
		}
		if look.size == 0 || time.Since(look.at) > diskLasts {
			continue
		}
		full = full || look.full
		if !known || float64(look.free)/float64(look.size) < float64(fullest.free)/float64(fullest.size) {
			fullest, known = look.room, true
		}
	}
	return fullest, full, known
}

// look looks at all folders, each in its own goroutine: one may hang. changed is called when
// a disk has become full, or has space again.
func (d *disks) look(changed func(folder string, r room, full bool)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for folder, look := range d.folders {
		if look.busy {
			continue
		}
		look.busy = true
		go func() {
			r, err := d.space(folder)
			d.mu.Lock()
			look.busy = false
			before := look.full
			if err == nil {
				look.room, look.at = r, time.Now()
				// One that was full must have some more, or its servers would come and go.
				look.full = r.free < d.reserve || before && r.free < d.reserve+d.reserve/4
			}
			now := look.full
			d.mu.Unlock()
			if before != now {
				changed(folder, r, now)
			}
		}()
	}
}

// watchDisks looks at the disks until ctx ends.
func (a *agent) watchDisks(ctx context.Context) {
	every(ctx, diskEvery, func() {
		a.servers.mu.Lock()
		for _, i := range a.servers.list {
			a.disks.of(i.folders())
		}
		a.servers.mu.Unlock()
		a.disks.look(func(folder string, r room, full bool) {
			if full {
				a.log.Warn("a disk is full: its instances get no jobs", "folder", folder, "free", r.free, "reserve", a.disks.reserve)
			} else {
				a.log.Info("a disk has space again", "folder", folder, "free", r.free)
			}
			a.servers.push()
		})
	})
}

// folders are those on this machine into which a server writes, as far as known: what the
// operator says, and what its command line says.
func (i *instance) folders() []string {
	if !onThisMachine(i.url) {
		return nil
	}
	var list []string
	add := func(folder string) {
		if filepath.IsAbs(folder) && !slices.Contains(list, filepath.Clean(folder)) {
			list = append(list, filepath.Clean(folder))
		}
	}
	if i.output != "" {
		add(i.output)
	}
	args := strings.Split(i.seen.Command, "\x00")
	flags := comfyui.Stats{Argv: args}
	for _, name := range []string{"--output-directory", "--temp-directory", "--base-directory"} {
		add(flags.Flag(name))
	}
	return list
}

// size is a number of bytes as a flag: 500MB, 2GB; a number alone is bytes.
type size int64

// String writes it as Set reads it.
func (s *size) String() string {
	for n, unit := range sizeUnits {
		if factor := int64(1) << (30 - 10*n); int64(*s) >= factor && int64(*s)%factor == 0 {
			return strconv.FormatInt(int64(*s)/factor, 10) + unit
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Set reads it.
func (s *size) Set(text string) error {
	number, factor := text, int64(1)
	for n, unit := range sizeUnits {
		if head, ok := strings.CutSuffix(text, unit); ok {
			number, factor = head, int64(1)<<(30-10*n)
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 {
		return fmt.Errorf("%q: want a size such as 2GB", text[:min(len(text), 40)])
	}
	*s = size(n * factor)
	return nil
}

// Type is the word for it in the help.
func (s *size) Type() string { return "size" }

var sizeUnits = [...]string{"GB", "MB", "KB"}
