package gossip

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
)

var (
	// ErrKeyRequired says that the group would be open to everybody who
	// reaches the port: to join it, to dispatch work, to end it.
	ErrKeyRequired = errors.New("a gossip key is required off loopback")
	// ErrPeer says that the other side of a connection does not have the key
	// that it must have: the gossip key, or the agent's own.
	ErrPeer = errors.New("the other side is not who it should be")
)

// What is derived from the key, each for one purpose only.
const (
	purposeGossip = "comfyhub gossip v1"
	purposeTLS    = "comfyhub agent tls v1"
)

// derive makes key material of the passphrase. The derivation is fast: it
// protects a random key well and a guessable word badly.
func derive(key, purpose string, size int) ([]byte, error) {
	material, err := hkdf.Key(sha256.New, []byte(key), nil, purpose, size)
	if err != nil {
		return nil, fmt.Errorf("gossip key: %w", err)
	}
	return material, nil
}
