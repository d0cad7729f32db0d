package queue

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// Sealer encrypts API keys, so that a copy of Redis's data does not reveal them. All hubs of a
// Redis must be able to open what one of them has sealed.
type Sealer interface {
	// Seal encrypts a value for one job, which label identifies. An error means
	// that no key is available now.
	Seal(value, label []byte) ([]byte, error)
	// Open undoes Seal. An ErrUnavailable means that the key is not available now; any other error
	// means that it never will be here.
	Open(ctx context.Context, sealed, label []byte) ([]byte, error)
}

// Vault is a Sealer with one fixed key. Versions before the keyring sealed with it; now it only
// opens what they left behind.
type Vault struct{ aead cipher.AEAD }

// NewVault derives the key from a secret of any length.
func NewVault(secret []byte) (*Vault, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "comfyhub api keys", 32)
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	return &Vault{aead}, nil
}

// randomVault is for a queue without a Sealer: what it seals is lost with the process.
func randomVault() (*Vault, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return NewVault(secret)
}

// Seal implements Sealer.
func (v *Vault) Seal(value, label []byte) ([]byte, error) {
	return v.aead.Seal(nil, nil, value, label), nil //nolint:gosec // this AEAD draws its nonces itself
}

// Open implements Sealer.
func (v *Vault) Open(_ context.Context, sealed, label []byte) ([]byte, error) {
	return v.aead.Open(nil, nil, sealed, label)
}

// seal encrypts the secrets of one job so that they cannot be moved to another one. Errors:
// ErrUnavailable.
func (q *store) seal(key string, secrets []byte) ([]byte, error) {
	sealed, err := q.o.Sealer.Seal(secrets, []byte(key))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return sealed, nil
}

// unseal undoes seal. Errors: ErrSecrets, ErrUnavailable.
func (q *store) unseal(ctx context.Context, key string, sealed []byte) ([]byte, error) {
	secrets, err := q.o.Sealer.Open(ctx, sealed, []byte(key))
	switch {
	case errors.Is(err, ErrUnavailable):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrSecrets, err)
	}
	return secrets, nil
}
