package queue

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
)

// vault encrypts API keys, so that a copy of Redis's data gives none away.
type vault struct{ aead cipher.AEAD }

// newVault derives the key from a secret of any length.
func newVault(secret []byte) (*vault, error) {
	if len(secret) == 0 {
		secret = make([]byte, 32)
		_, _ = rand.Read(secret) // never fails
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "comfyhub api keys", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &vault{aead: aead}, nil
}

// seal encrypts secrets for one job: they cannot be moved to another one.
func (v *vault) seal(key string, secrets []byte) []byte {
	return v.aead.Seal(nil, nil, secrets, []byte(key)) //nolint:gosec // this AEAD draws its nonces itself
}

// open undoes seal.
func (v *vault) open(key string, sealed []byte) ([]byte, error) {
	secrets, err := v.aead.Open(nil, nil, sealed, []byte(key))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSecrets, err)
	}
	return secrets, nil
}
