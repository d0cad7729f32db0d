// Package datadir keeps what a hub must know of itself when it starts again.
package datadir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/durable"
)

// Dir is the data folder of a hub. What the hub was told to keep is in Redis and in the storage, so it
// serves all the same if the folder fails.
type Dir struct {
	Path string
	Log  func() *slog.Logger
}

// markFile has the mark of the storage that the hub last used.
const markFile = "storage-mark"

// idPrefix begins the name of the file that stores a hub's id.
const idPrefix = "hub-id-"

// ID returns the hub's lasting id: a hub that starts again takes over at once what its earlier
// process left. The folder may be shared, so the id belongs to this machine and this gossip
// address; two hubs with the same id would take each other's runs for their own.
//
// If the data folder does not give the id, or does not keep a new one, the hub has one for this
// process alone: others then take what the process left for that of another hub, and wait until its
// leases end.
func (d Dir) ID(gossip string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == ':' || r == 0 {
			return '_'
		}
		return r
	}, host+"-"+gossip)
	id, err := lasting(filepath.Join(d.Path, idPrefix+name), 8)
	d.Without(err, "the hub has an id for this start only")
	return id
}

// lasting reads a random text from a file, creating it the first time, or if a power cut has torn it.
// With an error the text is not kept.
func lasting(path string, size int) (string, error) {
	b, err := os.ReadFile(path)
	text := strings.TrimSpace(string(b))
	if _, odd := hex.DecodeString(text); err == nil && odd == nil && len(text) == 2*size {
		return text, nil
	}
	text = Random(size)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = durable.WriteFile(path, []byte(text+"\n"))
	}
	return text, err
}

// Random returns a text of so many random bytes.
func Random(size int) string {
	b := make([]byte, size)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}

// secretFile is what versions before the keyring encrypted API keys with if there was no gossip key.
const secretFile = "secret"

// Secret returns the text of the file that versions before the keyring had, empty for none.
func (d Dir) Secret() string {
	b, err := os.ReadFile(filepath.Join(d.Path, secretFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.Log().Warn("the data folder fails; API keys that a version before the keyring has sealed cannot be opened", "error", err)
	}
	return strings.TrimSpace(string(b))
}

// Mark returns the mark that a storage had when this hub last used it, empty if that is unknown. Without
// it, a folder that is not mounted at the start would look like a new storage: the hub would put new
// keys into it, and files would count as lost.
func (d Dir) Mark(storage string) string {
	body, err := os.ReadFile(filepath.Join(d.Path, markFile))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	d.Without(err, "if the storage is not mounted now, the hub takes that for another one")
	mark, ok := strings.CutPrefix(string(body), storage+"\n")
	mark, whole := strings.CutSuffix(mark, "\n") // else a power cut has torn it
	if ok && whole && uuid.Validate(mark) == nil {
		return mark
	}
	return ""
}

// KeepMark remembers the mark of a storage. A hub that is killed in between has the old one or none,
// and learns it again.
func (d Dir) KeepMark(storage, mark string) {
	path, body := filepath.Join(d.Path, markFile), storage+"\n"+mark+"\n"
	if old, err := os.ReadFile(path); err == nil && string(old) == body {
		return
	}
	d.Without(durable.WriteFile(path, []byte(body)), "if the storage is not mounted at the next start, the hub takes that for another one")
}

// Without says once what a hub lacks whose data folder fails.
func (d Dir) Without(err error, lacks string) {
	if err != nil {
		d.Log().Warn("the data folder fails; the hub goes on without what it keeps there", "error", err, "meanwhile", lacks)
	}
}
