// Package webui keeps files of the web UI's build in memory, compressed, so that
// a page loads at the speed of the hub and not at that of an instance.
package webui

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/panics"
)

const (
	// maxSize bounds what is kept, in bytes, compressed forms included. The build
	// of web UI 1.49 takes 45 MiB with all of its languages, that of 1.27 half.
	maxSize = 96 << 20
	// maxFiles bounds how many files are kept: that build has 500.
	maxFiles = 2000
	// maxFile bounds one file, in bytes. The largest script of web UI 1.27 has 11 MB.
	maxFile = 16 << 20
	// readTimeout bounds the reading of one file.
	readTimeout = time.Minute
	// patience is how long a visitor waits for a file to be read as a whole. After
	// that it is passed on as it comes.
	patience = 3 * time.Second
	// maxReading bounds the files that are read at one time.
	maxReading = 32
	// maxAge is how long a file without a hash is shown before the instance is
	// asked for it again. A new build shows at once, see Page.
	maxAge = 10 * time.Minute
)

// Files are files of the build, as instances gave them. The hub asks for them
// itself, with no header of any visitor, so nothing personal can be in them. What
// an instance gave is shown as a file of that instance only, and only until the
// connection to it ends: a hostile one cannot leave anything behind.
//
// Files with a hash in their name never change. Those without one are kept of the
// source of the page only, and only for as long as it gives the same page: a
// build that is replaced while the instance runs brings a new page with it.
type Files struct {
	log *slog.Logger
	// packs are files to be compressed, warms says that another instance may
	// have to be read ahead.
	packs chan *File
	warms chan struct{}

	mu sync.Mutex
	lru
	reading map[key]*reading
	source  source
}

// key names a file of one connection to an instance. One without a connection is
// a file in a folder.
type key struct {
	from *comfyui.Client
	path string
}

// isNamed reports whether a file has no hash in its name: other content can have
// the same name.
func (k key) isNamed() bool { return !IsHashed(k.path) }

// reading is a question to an instance. file is nil if it gave nothing to keep.
type reading struct {
	done chan struct{}
	file *File
}

// New makes an empty set; Run compresses what comes into it.
func New(log *slog.Logger) *Files {
	return &Files{
		log: log, packs: make(chan *File, maxFiles), warms: make(chan struct{}, 1),
		lru: lru{files: map[key]*list.Element{}}, reading: map[key]*reading{},
	}
}

// Get is a file of an instance. Whoever asks first has it read, and all wait for
// that a few seconds. It is nil if there is nothing to keep, or not in time: the
// caller has to ask the instance itself.
func (f *Files) Get(ctx context.Context, from *comfyui.Client, path string) *File {
	file, q := f.find(ctx, key{from, path})
	if q == nil {
		return file
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-q.done:
		return q.file
	case <-timeout.C:
	case <-ctx.Done():
	}
	return nil
}

// find is a file that is kept, or else the question for it that has to be waited
// for. Both are nil if it is not to be kept, or too much is asked for.
func (f *Files) find(ctx context.Context, k key) (*File, *reading) {
	named := k.isNamed()
	f.mu.Lock() // Held: ask asks in a goroutine
	defer f.mu.Unlock()
	if named && (k.from != f.source.from || f.source.page == "") {
		return nil, nil
	}
	if file := f.get(k); file != nil {
		if named && time.Since(file.checked) > maxAge {
			f.ask(ctx, k) // the next visitor sees what comes
		}
		return file, nil
	}
	return nil, f.ask(ctx, k)
}

// ask has a file read, once for all who want it; nil if too many are read.
func (f *Files) ask(ctx context.Context, k key) *reading {
	q := f.reading[k]
	if q == nil && len(f.reading) < maxReading {
		q = &reading{done: make(chan struct{})}
		f.reading[k] = q
		// Not the visitor's context: others may wait for the same file.
		go f.read(context.WithoutCancel(ctx), k, q)
	}
	return q
}

// Forget drops what an instance gave. It is called when the connection to it
// ends: the process that answers next may have another build.
func (f *Files) Forget(from *comfyui.Client) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.source.from == from {
		f.source = source{}
	}
	f.drop(func(k key) bool { return k.from == from })
}

// drop removes files; those that are on their way are not kept.
func (f *Files) drop(which func(key) bool) {
	for k := range f.reading {
		if which(k) {
			delete(f.reading, k)
		}
	}
	f.removeAll(which)
}

// read asks an instance for a file.
func (f *Files) read(ctx context.Context, k key, q *reading) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var file *File
	err := panics.Do(f.log, "reading a file of the web UI", func() (err error) {
		file, err = fetch(ctx, k)
		return err
	})
	if err != nil {
		f.log.Debug("cannot read a file of the web UI", "error", err)
	}
	f.mu.Lock()
	if f.reading[k] == q {
		delete(f.reading, k)
		if err == nil {
			q.file = f.replace(k, file)
		}
	}
	f.mu.Unlock()
	close(q.done)
}

// replace keeps what an instance has given, nil for nothing, in place of what it
// gave before. It returns what is kept: the old file if its content is the same,
// since that is compressed already.
func (f *Files) replace(k key, file *File) *File {
	old := f.get(k)
	if old != nil && file != nil && file.hash == old.hash && file.modified.Equal(old.modified) {
		old.checked = file.checked
		return old
	}
	f.remove(old)
	if file == nil {
		return nil
	}
	f.add(file)
	if file.compressible() {
		select {
		case f.packs <- file:
		default: // it stays as it is
		}
	}
	return file
}

// hasRoom reports whether a file can be added without dropping another one.
func (f *Files) hasRoom() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.files) < maxFiles && f.size < maxSize/2
}

// fetch reads a file; nil if it is none that may be kept.
func fetch(ctx context.Context, k key) (*File, error) {
	resp, err := k.from.Ask(ctx, k.path, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	h := resp.Header
	switch {
	case resp.StatusCode != http.StatusOK, resp.ContentLength > maxFile, h.Get("Content-Encoding") != "",
		strings.HasPrefix(h.Get("Content-Type"), "text/html"):
		return nil, nil
	case k.isNamed() && (h.Get("Etag") == "" || h.Get("Last-Modified") == ""):
		return nil, nil // no file: a route of a custom node, which can say something else each time
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFile+1))
	if err != nil || len(body) > maxFile {
		return nil, err
	}
	sum := sha256.Sum256(body)
	file := &File{key: k, hash: hex.EncodeToString(sum[:16]), header: h, modified: time.Now(), checked: time.Now()}
	if modified, err := http.ParseTime(h.Get("Last-Modified")); err == nil {
		file.modified = modified
	}
	for _, name := range ofOneAnswer {
		h.Del(name)
	}
	file.plain = form{body: body}
	return file, nil
}

// ofOneAnswer are the headers that belong to the answer that was read, not to
// the file.
var ofOneAnswer = [...]string{
	"Accept-Ranges", "Age", "Allow", "Content-Length", "Content-Range", "Date", "Etag", "Expires", "Last-Modified", "Location", "Pragma",
	"Retry-After", "Vary",
}
