package hub

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// secretFile in the data folder is what versions before the keyring encrypted API keys with if
// there was no gossip key.
const secretFile = "secret"

// newKeys makes the ring of the hubs' own keys, which are in the storage, and from it what agents
// know the hubs by. Every GPU machine has the gossip key, so nothing that protects one tenant from
// another, a user from a machine, or a machine from another is derived from it.
func newKeys(storage *files.Storage, id config.Identity, secrets []string, log *slog.Logger) (*keyring.Ring, *gossip.Authority, error) {
	ring, err := keyring.New(keyring.Options{Store: storage.KeyStore(), Secrets: secrets, Logger: log})
	if err != nil {
		return nil, nil, fmt.Errorf("hub: %w", err)
	}
	authority, err := gossip.NewAuthority(id.GossipKey, func() ([]ed25519.PrivateKey, error) { return ring.Pairs(keyring.Agents) })
	if err != nil {
		return nil, nil, fmt.Errorf("hub: %w", err)
	}
	return ring, authority, nil
}

// explainKeys says what to do about keys that cannot be read.
func explainKeys(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, keyring.ErrLocked):
		return fmt.Errorf("hub: %w: give the hub the secret that it had before, after the new one", err)
	case errors.Is(err, keyring.ErrCorrupt):
		return fmt.Errorf("hub: %w: restore comfyhub-keys/ in the storage from a backup; deleting it ends all links, loses the API keys of waiting jobs, and agents refuse the hubs until their NAME.hub files are deleted", err)
	}
	return fmt.Errorf("hub: %w", err)
}

// apiKeys seals API keys with the ring, and opens what an earlier version has sealed.
type apiKeys struct {
	ring *keyring.Sealer
	old  []*queue.Vault
}

func newAPIKeys(id config.Identity, ring *keyring.Ring, log *slog.Logger) (*apiKeys, error) {
	k := &apiKeys{ring: ring.Sealer(keyring.APIKeys)}
	// The gossip key as it was written counts too: before there could be several, its text was one
	// key whatever it contained.
	secrets := append([]string{id.GossipKey}, gossip.Keys(id.GossipKey)...)
	b, err := os.ReadFile(filepath.Join(id.Data, secretFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the data folder fails; API keys that a version before the keyring has sealed cannot be opened", "error", err)
	}
	secrets = slices.Compact(append(secrets, strings.TrimSpace(string(b))))
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		old, err := queue.NewVault([]byte(secret))
		if err != nil {
			return nil, err
		}
		k.old = append(k.old, old)
	}
	return k, nil
}

// Seal implements queue.Sealer.
func (k *apiKeys) Seal(value, label []byte) ([]byte, error) { return k.ring.Seal(value, label) }

// Open implements queue.Sealer.
func (k *apiKeys) Open(ctx context.Context, sealed, label []byte) ([]byte, error) {
	value, err := k.ring.Open(ctx, sealed, label)
	if err == nil {
		return value, nil
	}
	for _, old := range k.old {
		if value, oldErr := old.Open(ctx, sealed, label); oldErr == nil {
			return value, nil
		}
	}
	if errors.Is(err, keyring.ErrUnavailable) { // the storage is away; the key may be there
		return nil, fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	}
	return nil, err
}
