package keyring

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Shelf keeps signed records of one kind in the store, beside the keys: what nobody may
// delete, or put back, who can only write to Redis. Reading one costs a request to the
// store.
type Shelf struct{ records *Records }

// shelfPrefix begins the names of the objects; the kind and the hash of the record's name
// follow.
const shelfPrefix = "record-"

// Shelf returns the shelf of one kind of records; see [Ring.Records] for the kind.
func (r *Ring) Shelf(kind string) *Shelf { return &Shelf{r.Records(kind)} }

// ID is what the record of a name is called on the shelf: nobody can tell the name from it.
func (s *Shelf) ID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return shelfPrefix + s.records.kind + "-" + hex.EncodeToString(sum[:16])
}

// Put keeps a record, a JSON object, under a name, in place of an older one. If two hubs put
// one at the same time, one of the two stays. Errors: ErrUnavailable.
func (s *Shelf) Put(ctx context.Context, name string, record []byte) error {
	object := s.ID(name)
	signed, err := s.records.Sign(object, record)
	if err != nil {
		return err
	}
	if err := s.records.ring.store.Write(ctx, object, append(signed, '\n')); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// IDs lists what is on the shelf. Errors: ErrUnavailable.
func (s *Shelf) IDs(ctx context.Context) ([]string, error) {
	names, err := s.records.ring.store.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	prefix := shelfPrefix + s.records.kind + "-"
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) }), nil
}

// Get returns a record. found is false if there is none. Errors: ErrUnavailable; ErrForged if
// what is there was not signed for this name.
func (s *Shelf) Get(ctx context.Context, name string) (record []byte, found bool, err error) {
	return s.Read(ctx, s.ID(name))
}

// Read is Get by the id of a record.
func (s *Shelf) Read(ctx context.Context, id string) (record []byte, found bool, err error) {
	body, found, err := s.records.ring.store.Read(ctx, id)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if !found {
		return nil, false, nil
	}
	record, _, err = s.records.Verify(ctx, id, []byte(strings.TrimSpace(string(body))))
	if errors.Is(err, ErrUnsigned) { // only a signed record is put here: this one was damaged
		err = ErrForged
	}
	return record, err == nil, err
}

// Delete removes a record; a missing one is not an error. Errors: ErrUnavailable.
func (s *Shelf) Delete(ctx context.Context, name string) error {
	if err := s.records.ring.store.Delete(ctx, s.ID(name)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// signShelves signs the records of all shelves again whose key was replaced, so that they
// outlive it. A record that is put at this very moment may be lost to the older one: this
// happens once for each record and each new key. The caller holds the lock.
func (r *Ring) signShelves(ctx context.Context) error {
	names, err := r.store.List(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	for _, name := range names {
		kind, _, ok := strings.Cut(strings.TrimPrefix(name, shelfPrefix), "-")
		if !ok || !strings.HasPrefix(name, shelfPrefix) {
			continue
		}
		body, found, err := r.store.Read(ctx, name)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		records := r.Records(kind)
		record, mark, err := split([]byte(strings.TrimSpace(string(body))))
		if !found || err != nil {
			continue
		}
		k, newest := r.find(keyID(mark[1:headSize])), r.sealing()
		if k == nil || newest == nil || k.id == newest.id || string(records.mac(k, name, record)) != string(mark[headSize:]) {
			continue
		}
		signed, err := records.Sign(name, record)
		if err != nil {
			return err
		}
		if err := r.store.Write(ctx, name, append(signed, '\n')); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return nil
}
