package keyring

import (
	"context"
	"fmt"
)

// sealedVersion is the first byte of each sealed value; the id of its key follows.
const sealedVersion = 1

const headSize = 1 + idSize

// Sealer seals and opens values for one purpose. A sealed value is unreadable
// and cannot be altered, nor be used with another label.
type Sealer struct {
	ring    *Ring
	purpose Purpose
}

// Sealer returns the sealer for a purpose.
func (r *Ring) Sealer(p Purpose) *Sealer { return &Sealer{r, p} }

// Seal encrypts a value. label binds the value to its place and is needed to open
// it. Errors: ErrUnavailable.
func (s *Sealer) Seal(value, label []byte) ([]byte, error) {
	k := s.ring.sealing()
	if k == nil {
		return nil, ErrUnavailable
	}
	head := append([]byte{sealedVersion}, k.id[:]...)
	return k.aeads[s.purpose].Seal(head, nil, value, label), nil //nolint:gosec // this AEAD draws its nonces itself
}

// Open undoes Seal. An unknown key causes the ring to be read again, but not too
// often. Errors: ErrForged, also for a key that was deleted; ErrUnavailable.
func (s *Sealer) Open(ctx context.Context, sealed, label []byte) ([]byte, error) {
	if len(sealed) < headSize || sealed[0] != sealedVersion {
		return nil, ErrForged
	}
	id := keyID(sealed[1:headSize])
	k := s.ring.find(id)
	if k == nil {
		var err error
		if k, err = s.ring.ask(ctx, s.purpose, id); err != nil {
			return nil, err
		}
	}
	if k == nil {
		if s.ring.sealing() == nil {
			return nil, ErrUnavailable
		}
		return nil, fmt.Errorf("%w: its key is not known", ErrForged)
	}
	// The tag is compared in constant time.
	value, err := k.aeads[s.purpose].Open(nil, nil, sealed[headSize:], label)
	if err != nil {
		return nil, ErrForged
	}
	return value, nil
}
