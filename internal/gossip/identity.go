package gossip

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/comfyhub/comfyhub/internal/durable"
)

// Identity is the key pair of one agent. The gossip key proves that a member
// belongs to the group, and every machine of the group has it; the identity proves
// which agent it is, and never leaves the machine. The zero value is no identity.
type Identity struct{ private ed25519.PrivateKey }

// pemType is the type of LoadIdentity's files, the same as openssl writes.
const pemType = "PRIVATE KEY"

// NewIdentity returns an identity that ends with the process.
func NewIdentity() Identity {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil { // never happens, see crypto/rand
		panic(fmt.Sprintf("gossip: %v", err))
	}
	return Identity{private}
}

// LoadIdentity reads the identity from a file. If there is none, it creates the
// identity and the file, including its folder. An unreadable file is an error: with
// a new identity, hubs would take the agent for another machine.
func LoadIdentity(file string) (Identity, error) {
	id, err := readIdentity(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return Identity{}, fmt.Errorf("agent key: %w", err)
	}
	if err := NewIdentity().write(file); err != nil && !errors.Is(err, fs.ErrExist) {
		return Identity{}, fmt.Errorf("agent key: %w", err)
	}
	return readIdentity(file) // another process that started at the same time was faster
}

func readIdentity(file string) (Identity, error) {
	info, err := os.Stat(file)
	if err != nil {
		return Identity{}, fmt.Errorf("agent key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return Identity{}, fmt.Errorf("agent key %s: others may read it: chmod 600", file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return Identity{}, fmt.Errorf("agent key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemType {
		return Identity{}, fmt.Errorf("agent key %s: not a %s in PEM", file, pemType)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Identity{}, fmt.Errorf("agent key %s: %w", file, err)
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return Identity{}, fmt.Errorf("agent key %s: not an Ed25519 key", file)
	}
	return Identity{private}, nil
}

// write creates the file completely or not at all. The error is fs.ErrExist if it
// already exists.
func (i Identity) write(file string) error {
	der, err := x509.MarshalPKCS8PrivateKey(i.private)
	if err != nil {
		return err
	}
	draft, err := os.CreateTemp(filepath.Dir(file), ".key-*") // has mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name())
	err = pem.Encode(draft, &pem.Block{Type: pemType, Bytes: der})
	if err = errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return err
	}
	if err := os.Link(draft.Name(), file); err != nil {
		return err
	}
	return durable.SyncFolder(filepath.Dir(file))
}

func (i Identity) none() bool { return i.private == nil }

// Key returns the public half as text, empty for no identity.
func (i Identity) Key() string {
	if i.none() {
		return ""
	}
	return keyText(i.private.Public().(ed25519.PublicKey)) //nolint:forcetypeassert // ed25519 has no other
}

// keyText is a public key as text.
func keyText(key ed25519.PublicKey) string { return base64.RawURLEncoding.EncodeToString(key) }

// parseKey decodes what Identity.Key returns.
func parseKey(key string) (ed25519.PublicKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(key)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, errors.New("not a public key")
	}
	return b, nil
}

// Fingerprint shortens a public key so that people can compare it with the one that
// the agent shows.
func Fingerprint(key string) string {
	if key == "" {
		return "none"
	}
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}
