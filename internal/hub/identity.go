package hub

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// idPrefix begins the name of the file in the data folder that stores a hub's id.
const idPrefix = "hub-id-"

// ownID returns the hub's lasting id: a hub that starts again takes over at once what its earlier
// process left. The folder may be shared, so the id belongs to this machine and this gossip
// address; two hubs with the same id would take each other's runs for their own.
func (h *Hub) ownID() (string, error) {
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
	return lasting(filepath.Join(h.id.Data, idPrefix+name), 8)
}

// lasting reads a random text from a file, creating it the first time.
func lasting(path string, size int) (string, error) {
	b, err := os.ReadFile(path)
	if text := strings.TrimSpace(string(b)); err == nil && len(text) == 2*size {
		return text, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("hub: data folder: %w", err)
	}
	text := randomText(size)
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("hub: data folder: %w", err)
	}
	return text, nil
}

func randomText(size int) string {
	b := make([]byte, size)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}
