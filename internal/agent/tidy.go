package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

const (
	// tidyEvery is the pause between two looks for files to delete.
	tidyEvery = 10 * time.Minute
	// leastOutputAge is the least that --output-age may be: the hub's clients may ask for a
	// file of a run that has just ended.
	leastOutputAge = time.Minute
	// clockStep is how much older than now a file may seem that was just written: file
	// systems use a coarser clock.
	clockStep = 2 * time.Second
)

// tidier deletes files from the output folder of one server that the hub keeps. The hub says
// which; it is not trusted with more than that. A file is deleted only if
//
//   - it lies in the output folder, and no link leads there on its way,
//   - it is a regular file,
//   - it was written since the agent first had this folder: what was there before is not
//     touched,
//   - time and size are those that the hub has seen, and the content has the hash that the
//     hub says, so that the hub has read it whole,
//   - the hub has said so at least age ago.
type tidier struct {
	folder string
	age    time.Duration
	list   *keptList
	log    *slog.Logger
}

// errKept means that a file is not deleted now or ever; it stays where it is.
var errKept = errors.New("left alone")

// take notes what the hub keeps. What cannot be deleted in any case is not noted.
func (t *tidier) take(files []comfyui.KeptFile) error {
	var valid []keptFile
	for _, f := range files {
		if k, ok := t.valid(f); ok {
			valid = append(valid, k)
		}
	}
	return t.list.add(valid)
}

// valid checks what the hub says of a file.
func (t *tidier) valid(f comfyui.KeptFile) (keptFile, bool) {
	name := path.Join(filepath.ToSlash(f.Subfolder), f.Filename)
	written, size, ok := parseETag(f.ETag)
	hash, err := hex.DecodeString(f.SHA256)
	switch {
	case f.Filename == "" || strings.ContainsAny(f.Filename, "/\\\x00") || strings.Contains(f.Subfolder, "\x00"),
		len(name) > 1000 || !filepath.IsLocal(filepath.FromSlash(name)),
		!ok || err != nil || len(hash) != sha256.Size,
		written.Before(t.list.since().Add(-clockStep)):
		return keptFile{}, false
	}
	return keptFile{Name: name, Written: written.UnixNano(), Size: size, SHA256: strings.ToLower(f.SHA256), At: time.Now().Unix()}, true
}

// parseETag reads what ComfyUI's web server makes of a file: "<mtime ns>-<size>", both in
// hex, with quotes.
func parseETag(text string) (written time.Time, size int64, ok bool) {
	text, quoted := strings.CutPrefix(text, `"`)
	text, closed := strings.CutSuffix(text, `"`)
	first, second, cut := strings.Cut(text, "-")
	ns, err1 := strconv.ParseInt(first, 16, 64)
	size, err2 := strconv.ParseInt(second, 16, 64)
	if !quoted || !closed || !cut || err1 != nil || err2 != nil || ns <= 0 || size < 0 {
		return time.Time{}, 0, false
	}
	return time.Unix(0, ns), size, true
}

// sweep deletes what is due, and returns how many files that were.
func (t *tidier) sweep(ctx context.Context, now time.Time) (deleted int) {
	root, err := os.OpenRoot(t.folder)
	if err != nil {
		t.log.Warn("the output folder cannot be opened", "error", err)
		return 0
	}
	defer root.Close()
	for _, f := range t.list.due(now.Add(-t.age)) {
		if ctx.Err() != nil {
			return deleted
		}
		err := remove(root, f)
		switch {
		case err == nil:
			deleted++
		case errors.Is(err, errKept), errors.Is(err, fs.ErrNotExist):
			t.log.Debug("an output file is not deleted", "error", err)
		default:
			t.log.Warn("cannot delete an output file, will try again", "error", err)
			continue
		}
		t.list.drop(f)
	}
	if err := t.list.compact(); err != nil {
		t.log.Warn("cannot write the list of files that the hub keeps", "error", err)
	}
	return deleted
}

// remove deletes a file if it is what the hub keeps.
func remove(root *os.Root, f keptFile) error {
	name := filepath.FromSlash(f.Name)
	// A link on the way may lead to a file that is nobody's output.
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if info, err := root.Lstat(dir); err != nil {
			return err
		} else if !info.IsDir() {
			return fmt.Errorf("%w: a link or a file is on its way", errKept)
		}
	}
	same := func() (fs.FileInfo, error) {
		info, err := root.Lstat(name)
		switch {
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("%w: it is not a regular file", errKept)
		case info.Size() != f.Size || info.ModTime().UnixNano() != f.Written:
			return nil, fmt.Errorf("%w: it has changed since", errKept)
		}
		return info, nil
	}
	before, err := same()
	if err != nil {
		return err
	}
	file, err := root.Open(name)
	if err != nil {
		return err
	}
	opened, err := file.Stat()
	hash := sha256.New()
	if err == nil {
		_, err = io.Copy(hash, file)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if !os.SameFile(before, opened) || hex.EncodeToString(hash.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%w: the hub has another content", errKept)
	}
	if after, err := same(); err != nil {
		return err
	} else if !os.SameFile(after, opened) {
		return fmt.Errorf("%w: it was replaced meanwhile", errKept)
	}
	return root.Remove(name)
}

// tidy sweeps the output folders until ctx ends.
func (a *agent) tidy(ctx context.Context) {
	every(ctx, tidyEvery, func() {
		for _, i := range a.servers.all() {
			if i.tidier == nil {
				continue
			}
			if n := i.tidier.sweep(ctx, time.Now()); n > 0 {
				a.log.Info("deleted output files that the hub keeps", "instance", i.name, "files", n)
			}
		}
	})
}

// every calls do now and after each pause, until ctx ends.
func every(ctx context.Context, pause time.Duration, do func()) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
