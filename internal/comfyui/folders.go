package comfyui

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// maxFolders bounds the folders that are looked at, and maxFolderDepth how
	// deep: a server says itself where its models are, and folders can be
	// linked in a circle.
	maxFolders     = 2000
	maxFolderDepth = 16
	// folderRest is how many times as long as a look took the disks are left
	// alone: those of a network can be slow.
	folderRest = 20
	// tellEvery is the pause after a change before the next one is told. A
	// copy of many files is one change to all but the disks.
	tellEvery = 10 * time.Second
	// placesEvery is how often the server is asked where its models are.
	placesEvery = time.Minute
)

// folderWatch looks at the model folders of a server on this machine, and tells
// when a file was added or removed. ComfyUI goes by the times of the folders,
// and so does this. It asks for them again and again instead of letting the
// system report changes: model folders are often shares, and of what another
// machine does there the system tells nothing.
type folderWatch struct {
	client *Client
	// every is the pause between two looks, rest that after a change.
	every, rest time.Duration
	// changed gets a value after a change; one that nobody has taken stands
	// for all that follow.
	changed chan struct{}

	asked  time.Time // when the places were last known
	places []string
	seen   map[string]folder
}

// folder is what is known of one.
type folder struct {
	changed time.Time
	below   []string // the folders in it
}

func newFolderWatch(c *Client, every time.Duration) *folderWatch {
	return &folderWatch{
		client: c, every: every, rest: min(tellEvery, 3*every), changed: make(chan struct{}, 1), seen: map[string]folder{},
	}
}

// run looks until ctx ends.
func (f *folderWatch) run(ctx context.Context) {
	for first := true; ; {
		began := time.Now()
		pause := f.every
		if f.learn(ctx) {
			if f.look() && !first {
				select {
				case f.changed <- struct{}{}:
				default:
				}
				pause = f.rest
			}
			first = false
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(pause, folderRest*time.Since(began))):
		}
	}
}

// learn asks where the models are, now and then, and reports whether that is
// known.
func (f *folderWatch) learn(ctx context.Context) bool {
	if f.places != nil && time.Since(f.asked) < placesEvery {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, placesEvery)
	defer cancel()
	body, err := f.client.wire.read(ctx, request{method: http.MethodGet, path: "/experiment/models", limit: maxSmall})
	if err == nil {
		f.places, f.asked = parsePlaces(body), time.Now()
	}
	return f.places != nil
}

// parsePlaces reads an answer of /experiment/models. It is never nil.
func parsePlaces(body []byte) []string {
	places := []string{}
	v, err := pyjson.Parse(body)
	if err != nil {
		return places
	}
	kinds, _ := v.(pyjson.Array)
	for _, kind := range kinds {
		o, _ := kind.(*pyjson.Object)
		for _, folder := range o.Array("folders") {
			if path, ok := folder.(pyjson.String); ok && filepath.IsAbs(string(path)) && len(places) < maxFolders {
				places = append(places, filepath.Clean(string(path)))
			}
		}
	}
	return places
}

// look reports whether a folder has changed, come or gone since the last time.
func (f *folderWatch) look() (changed bool) {
	before := f.seen
	f.seen = make(map[string]folder, len(before))
	for _, place := range f.places {
		changed = f.visit(place, 0, before) || changed
	}
	return changed || len(f.seen) != len(before)
}

// visit looks at a folder and those below it. Only one that has changed is
// listed: a new folder changes the one that it is in.
func (f *folderWatch) visit(path string, depth int, before map[string]folder) (changed bool) {
	if _, again := f.seen[path]; again || len(f.seen) >= maxFolders || depth > maxFolderDepth {
		return false
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return false // ComfyUI sees nothing there either, or it has other disks
	}
	now, known := before[path]
	if !known || !now.changed.Equal(info.ModTime()) {
		changed = true
		now = folder{info.ModTime(), foldersIn(path)}
	}
	f.seen[path] = now
	for _, sub := range now.below {
		changed = f.visit(sub, depth+1, before) || changed
	}
	return changed
}

// foldersIn lists the folders in a folder, links to folders included, which
// ComfyUI follows too.
func foldersIn(path string) (below []string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if kind := e.Type(); e.Name() == ".git" || !kind.IsDir() && kind&os.ModeSymlink == 0 {
			continue
		}
		if below = append(below, filepath.Join(path, e.Name())); len(below) >= maxFolders {
			break
		}
	}
	return below
}
