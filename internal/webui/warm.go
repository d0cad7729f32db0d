package webui

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/panics"
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
		if from := source(); from != nil && f.become(from) {
			_ = panics.Do(f.log, "reading the web UI ahead", func() error { f.warm(ctx, from); return nil })
		}
	}
}

// Changed says that an instance has come or gone, and another one may be the
// source now. It does not wait.
func (f *Files) Changed() {
	select {
	case f.warms <- struct{}{}:
	default:
	}
}

// warm reads the files that the page names, those that these name, and so on,
// one at a time: the instance has other work.
func (f *Files) warm(ctx context.Context, from *comfyui.Client) {
	page, err := f.readPage(ctx, from)
	if err != nil {
		f.log.Debug("cannot read the web UI's page ahead", "error", err)
		return
	}
	met := map[string]bool{}
	next := append(hashedIn(page, met), listedIn(page, met)...)
	for n := 0; n < len(next) && f.hasRoom() && ctx.Err() == nil; n++ {
		file := f.Get(ctx, from, next[n])
		if file != nil && IsHashed(next[n]) && (strings.HasSuffix(next[n], ".js") || strings.HasSuffix(next[n], ".css")) {
			next = append(next, hashedIn(file.plain.body, met)...)
		}
	}
	f.log.Debug("read the web UI ahead", "files", len(met))
}

func (f *Files) readPage(ctx context.Context, from *comfyui.Client) ([]byte, error) {
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
	f.Page(from, resp.Header)
	return io.ReadAll(io.LimitReader(resp.Body, maxPage))
}

// readAhead are the endings of files that a page waits for.
var readAhead = []string{".js", ".mjs", ".css", ".woff2"}

// listedIn are the other files of the build that a page lists by their paths, as
// that of web UI 1.27 does with its libraries in an import map.
func listedIn(page []byte, met map[string]bool) (paths []string) {
	for rest := page; ; {
		_, after, found := bytes.Cut(rest, []byte(Folder))
		if !found {
			return paths
		}
		rest = after
		end := 0
		for end < len(rest) && end < maxName && (inName(rest[end]) || rest[end] == '/') {
			end++
		}
		asked := Folder + string(rest[:end])
		if len(met) < maxFiles && !met[asked] && slices.Contains(readAhead, path.Ext(asked)) && IsFile(asked) {
			met[asked] = true
			paths = append(paths, asked)
		}
	}
}

// hashedIn are the files with a hash that a text names and that were not met
// before. Only their names are looked for: how a bundler writes an import is its
// own affair.
func hashedIn(text []byte, met map[string]bool) (paths []string) {
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
			if asked := Folder + name; len(met) < maxFiles && !met[asked] && IsHashed(asked) {
				met[asked] = true
				paths = append(paths, asked)
			}
		}
	}
	return paths
}

// inName reports whether a byte can be in a file's name.
func inName(c byte) bool {
	return c == '-' || c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
