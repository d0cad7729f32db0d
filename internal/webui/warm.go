package webui

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/rescue"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// settle is how long the fleet is left alone before files are read ahead:
	// while it connects, the primary changes with each instance.
	settle = 2 * time.Second
	// maxPage bounds the page of the web UI, in bytes.
	maxPage = 4 << 20
	// maxName bounds the name of a file, in bytes.
	maxName = 120
)

// Source is the instance that the web UI comes from, nil for none.
type Source func() *comfyui.Client

// Run compresses files and reads ahead those of the page's source, so that the
// first visitor finds them, until the context ends.
func (f *Files) Run(ctx context.Context, source Source) {
	var work sync.WaitGroup
	work.Go(func() { f.packAll(ctx) })
	defer work.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.warms:
		}
		if !retry.Sleep(ctx, settle) {
			return
		}
		if from := source(); from != nil && f.mayWarm(from) {
			_ = rescue.Do(f.log, "reading the web UI ahead", func() error { f.warm(ctx, from); return nil })
		}
	}
}

// Connected says that an instance has connected, and may be the source now. It
// does not wait.
func (f *Files) Connected() {
	select {
	case f.warms <- struct{}{}:
	default:
	}
}

// mayWarm reports whether the files of a connection are still to be read ahead.
func (f *Files) mayWarm(from *comfyui.Client) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.warmed[from]
	f.warmed[from] = true
	return !before
}

// warm reads the files that the page names, those that these name, and so on,
// one at a time: the instance has other work.
func (f *Files) warm(ctx context.Context, from *comfyui.Client) {
	page, err := readPage(ctx, from)
	if err != nil {
		f.log.Debug("cannot read the web UI's page ahead", "error", err)
		return
	}
	met := map[string]bool{}
	next := named(page, met)
	for n := 0; n < len(next) && f.hasRoom() && ctx.Err() == nil; n++ {
		file := f.Get(ctx, from, next[n])
		if file != nil && (strings.HasSuffix(next[n], ".js") || strings.HasSuffix(next[n], ".css")) {
			next = append(next, named(file.plain.body, met)...)
		}
	}
	f.log.Debug("read the web UI ahead", "files", len(met))
}

func readPage(ctx context.Context, from *comfyui.Client) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	resp, err := from.Ask(ctx, "/", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxPage))
}

// readAhead are the endings of files that a page waits for.
var readAhead = []string{".js", ".css", ".woff2"}

// named are the files with a hash that a text names and that were not met
// before. Only their names are looked for: how a bundler writes an import is its
// own affair.
func named(text []byte, met map[string]bool) (paths []string) {
	for _, ending := range readAhead {
		for rest := text; ; {
			at := bytes.Index(rest, []byte(ending))
			if at < 0 {
				break
			}
			from := at
			for from > 0 && at-from < maxName && inName(rest[from-1]) {
				from--
			}
			name := string(rest[from:at]) + ending
			rest = rest[at+len(ending):]
			if len(rest) > 0 && inName(rest[0]) {
				continue // .json, .js.map
			}
			if path := Folder + name; len(met) < maxFiles && !met[path] && IsHashed(path) {
				met[path] = true
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// inName reports whether a byte can be in a file's name.
func inName(c byte) bool {
	return c == '-' || c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
