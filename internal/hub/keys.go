package hub

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/keyring"
)

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

// oldSecrets are those with which versions before the keyring have sealed API keys. The gossip key as it
// was written counts too: before there could be several, its text was one key whatever it contained.
func (h *Hub) oldSecrets() []string {
	secrets := append([]string{h.id.GossipKey}, gossip.Keys(h.id.GossipKey)...)
	return slices.Compact(append(secrets, h.data.Secret()))
}
