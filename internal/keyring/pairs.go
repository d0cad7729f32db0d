package keyring

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"slices"
)

// maxPairs bounds the key pairs that Pairs returns.
const maxPairs = 32

// Pairs derives a key pair from each key of the ring, for one purpose: first from the key
// that is in use, then from those that it has replaced, the youngest first. With these a
// hub vouches for the first to whoever knows an older one. Errors: ErrUnavailable.
func (r *Ring) Pairs(p Purpose) ([]ed25519.PrivateKey, error) {
	used := r.sealing()
	if used == nil {
		return nil, ErrUnavailable
	}
	keys := *r.keys.Load()
	keys = keys[:slices.Index(keys, used)+1]
	var pairs []ed25519.PrivateKey
	for _, k := range slices.Backward(keys[max(0, len(keys)-maxPairs):]) {
		seed, err := hkdf.Key(sha256.New, k.secret, nil, string(p), ed25519.SeedSize)
		if err != nil {
			return nil, fmt.Errorf("key of the hub: %w", err)
		}
		pairs = append(pairs, ed25519.NewKeyFromSeed(seed))
	}
	return pairs, nil
}
