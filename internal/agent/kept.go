package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/durable"
)

// maxKeptFiles bounds what is noted for one server, of some 200 bytes each. Files beyond it
// stay where they are.
const maxKeptFiles = 200_000

// keptFile is an output file that the hub keeps.
type keptFile struct {
	// Name is its path in the output folder, with slashes.
	Name string `json:"name"`
	// Written is the time of the file in Unix nanoseconds.
	Written int64  `json:"written"`
	Size    int64  `json:"size"`
	SHA256  string `json:"sha256"`
	// At is when the hub said so, in Unix seconds.
	At int64 `json:"at"`
}

// keptList is what the hub keeps of one server's files. It outlives the agent: the first
// line of its file says since when the agent has had the folder, the others are files.
type keptList struct {
	path  string
	begun int64 // Unix nanoseconds

	mu    sync.Mutex
	files map[string]keptFile // by Name
	// lines counts those of the file.
	lines int
}

// keptHead is the first line of the file.
type keptHead struct {
	Folder string `json:"folder"`
	Since  int64  `json:"since"`
}

// openKept reads the list of a folder, or begins one.
func openKept(path, folder string) (*keptList, error) {
	l := &keptList{path: path, begun: time.Now().UnixNano(), files: map[string]keptFile{}}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	var head keptHead
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &head) != nil || head.Folder != folder || head.Since <= 0 {
		return l, l.write(folder)
	}
	l.begun, l.lines = head.Since, 1
	for lines.Scan() {
		l.lines++
		var f keptFile
		// The last line may be cut off, where the machine has lost its power.
		if json.Unmarshal(lines.Bytes(), &f) == nil && f.Name != "" && len(l.files) < maxKeptFiles {
			l.files[f.Name] = f
		}
	}
	return l, nil
}

// since is when the agent first had the folder.
func (l *keptList) since() time.Time { return time.Unix(0, l.begun) }

// add notes files.
func (l *keptList) add(files []keptFile) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var text []byte
	for _, f := range files {
		if _, known := l.files[f.Name]; !known && len(l.files) >= maxKeptFiles {
			break
		}
		l.files[f.Name] = f
		text = append(append(text, mustJSON(f)...), '\n')
		l.lines++
	}
	if len(text) == 0 {
		return nil
	}
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// due returns what the hub has said before a moment, the oldest first.
func (l *keptList) due(before time.Time) []keptFile {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.DeleteFunc(slices.Collect(maps.Values(l.files)), func(f keptFile) bool { return f.At > before.Unix() })
	slices.SortFunc(list, func(a, b keptFile) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name)) })
	return list
}

// drop forgets a file, unless the hub has said something new of it.
func (l *keptList) drop(f keptFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files[f.Name] == f {
		delete(l.files, f.Name)
	}
}

// compact rewrites the file if it has much that is not needed.
func (l *keptList) compact() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines <= 1+2*len(l.files) {
		return nil
	}
	text, err := os.ReadFile(l.path)
	if err != nil {
		return err
	}
	head, _, _ := bytes.Cut(text, []byte("\n"))
	var h keptHead
	if err := json.Unmarshal(head, &h); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(l.path), err)
	}
	return l.write(h.Folder)
}

// write rewrites the file. The caller holds the lock, or has the list alone.
func (l *keptList) write(folder string) error {
	text := append(mustJSON(keptHead{folder, l.begun}), '\n')
	for _, name := range slices.Sorted(maps.Keys(l.files)) {
		text = append(append(text, mustJSON(l.files[name])...), '\n')
	}
	if err := durable.WriteFile(l.path, text); err != nil {
		return err
	}
	l.lines = 1 + len(l.files)
	return nil
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // strings and integers only
		panic(fmt.Sprintf("agent: encoding a list: %v", err))
	}
	return text
}
