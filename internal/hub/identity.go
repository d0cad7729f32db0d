package hub

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/comfyhub/comfyhub/internal/durable"
)

// idPrefix begins the name of the file in the data folder that stores a hub's id.
const idPrefix = "hub-id-"

// ownID returns the hub's lasting id: a hub that starts again takes over at once what its earlier
// process left. The folder may be shared, so the id belongs to this machine and this gossip
// address; two hubs with the same id would take each other's runs for their own.
//
// If the data folder does not give the id, or does not keep a new one, the hub has one for this
// process alone: others then take what the process left for that of another hub, and wait until its
// leases end.
func (h *Hub) ownID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == ':' || r == 0 {
			return '_'
		}
		return r
	}, host+"-"+h.id.GossipBind)
	id, err := lasting(filepath.Join(h.id.Data, idPrefix+name), 8)
	h.without(err, "the hub has an id for this start only")
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
	text = randomText(size)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = durable.WriteFile(path, []byte(text+"\n"))
	}
	return text, err
}

func randomText(size int) string {
	b := make([]byte, size)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}
