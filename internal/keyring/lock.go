package keyring

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// MinSecret is the minimum length of an operator's secret, in bytes. Anybody with a
// copy of the store could guess a shorter one.
const MinSecret = 16

// iterations makes guessing a secret slow: about 0.1 s per attempt on one core. A
// secret may be a sentence that somebody made up.
const iterations = 600_000

// lock seals the keys in the store with a secret of the operator.
type lock struct {
	// id tells which secret has sealed a key. It is derived slowly as well, so it
	// does not speed up guessing.
	id   string
	aead cipher.AEAD
}

// newLocks derives the locks of the secrets, in order.
func newLocks(secrets []string, slow int) ([]*lock, error) {
	locks := make([]*lock, len(secrets))
	for n, secret := range secrets {
		if len(secret) < MinSecret {
			return nil, fmt.Errorf("a secret of %d bytes is too short: want %d or more, such as those of `openssl rand -base64 32`", len(secret), MinSecret)
		}
		var err error
		if locks[n], err = newLock(secret, slow); err != nil {
			return nil, err
		}
	}
	return locks, nil
}

func newLock(secret string, slow int) (*lock, error) {
	derived, err := pbkdf2.Key(sha256.New, secret, []byte("comfyhub secret v1"), slow, secretSize)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	id, err := hkdf.Key(sha256.New, derived, nil, "comfyhub secret id v1", idSize)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	material, err := hkdf.Key(sha256.New, derived, nil, "comfyhub keyring v1", secretSize)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	aead, err := newAEAD(material)
	return &lock{id: hex.EncodeToString(id), aead: aead}, err
}

// same reports whether two locks have the same secret; nil means none.
func (l *lock) same(other *lock) bool {
	return l == other || l != nil && other != nil && l.id == other.id
}

// String names a lock in logs.
func (l *lock) String() string {
	if l == nil {
		return "no secret"
	}
	return "secret " + l.id
}

func firstOf(locks []*lock) *lock {
	if len(locks) == 0 {
		return nil
	}
	return locks[0]
}

func lockOf(locks []*lock, id string) *lock {
	n := slices.IndexFunc(locks, func(l *lock) bool { return l.id == id })
	if n < 0 {
		return nil
	}
	return locks[n]
}
