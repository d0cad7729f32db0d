package gossip

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/memberlist"
)

var (
	// ErrKeyRequired means that, without a key, anybody who reaches the port could
	// join the group, dispatch work to it, and shut it down.
	ErrKeyRequired = errors.New("a gossip key is required off loopback")
	// ErrPeer means that the other side of a connection does not have the required
	// key: the gossip key, or the agent's own.
	ErrPeer = errors.New("the other side is not who it should be")
)

// What is derived from the key, each for one purpose only.
const (
	purposeGossip = "comfyhub gossip v1"
	purposeTLS    = "comfyhub agent tls v1"
)

// derive derives key material from the passphrase. It is fast: it protects a random
// key well and a guessable word badly.
func derive(key, purpose string, size int) ([]byte, error) {
	material, err := hkdf.Key(sha256.New, []byte(key), nil, purpose, size)
	if err != nil {
		return nil, fmt.Errorf("gossip key: %w", err)
	}
	return material, nil
}

// Keys splits a text into keys, one per line. The first is used, and all are
// accepted, so that a group can change its key one member at a time: all members
// get the new key as the second, then as the first, and then alone.
func Keys(text string) []string {
	var keys []string
	for line := range strings.Lines(text) {
		if key := strings.TrimSpace(line); key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// keyring returns what memberlist encrypts and decrypts with, nil without a key.
func keyring(text string) (*memberlist.Keyring, error) {
	keys := Keys(text)
	if len(keys) == 0 {
		return nil, nil //nolint:nilnil // gossip in clear, on loopback
	}
	secrets := make([][]byte, len(keys))
	for n, key := range keys {
		var err error
		if secrets[n], err = derive(key, purposeGossip, 32); err != nil {
			return nil, err
		}
	}
	ring, err := memberlist.NewKeyring(secrets, secrets[0])
	if err != nil {
		return nil, fmt.Errorf("gossip key: %w", err)
	}
	return ring, nil
}
