package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/keyring"
)

// Sealed is a [Sealer] with a key of the ring. It opens what earlier versions have sealed with a secret
// as well.
type Sealed struct {
	ring *keyring.Sealer
	old  []*Vault
}

// NewSealed returns a Sealer. Empty secrets are left out.
func NewSealed(ring *keyring.Sealer, secrets []string) (*Sealed, error) {
	s := &Sealed{ring: ring}
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		old, err := NewVault([]byte(secret))
		if err != nil {
			return nil, err
		}
		s.old = append(s.old, old)
	}
	return s, nil
}

// Seal implements [Sealer].
func (s *Sealed) Seal(value, label []byte) ([]byte, error) { return s.ring.Seal(value, label) }

// Open implements [Sealer].
func (s *Sealed) Open(ctx context.Context, sealed, label []byte) ([]byte, error) {
	value, err := s.ring.Open(ctx, sealed, label)
	if err == nil {
		return value, nil
	}
	for _, old := range s.old {
		if value, oldErr := old.Open(ctx, sealed, label); oldErr == nil {
			return value, nil
		}
	}
	if errors.Is(err, keyring.ErrUnavailable) { // the storage is away; the key may be there
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil, err
}
