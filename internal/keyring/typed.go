package keyring

import (
	"context"
	"encoding/json"
	"fmt"
)

// Typed is a [Shelf] whose records are of one type, which encodes as a JSON object. Its errors
// are those of Shelf, and begin with the kind of the records.
type Typed[T any] struct{ shelf *Shelf }

// ShelfOf returns the shelf of one kind of records; see [Ring.Records] for the kind.
func ShelfOf[T any](r *Ring, kind string) Typed[T] { return Typed[T]{r.Shelf(kind)} }

// ID is [Shelf.ID].
func (s Typed[T]) ID(name string) string { return s.shelf.ID(name) }

// IDs is [Shelf.IDs].
func (s Typed[T]) IDs(ctx context.Context) ([]string, error) {
	ids, err := s.shelf.IDs(ctx)
	return ids, s.told(err)
}

// Get is [Shelf.Get].
func (s Typed[T]) Get(ctx context.Context, name string) (record T, found bool, err error) {
	return s.Read(ctx, s.ID(name))
}

// Read is [Shelf.Read].
func (s Typed[T]) Read(ctx context.Context, id string) (record T, found bool, err error) {
	text, found, err := s.shelf.Read(ctx, id)
	if err == nil && found {
		err = json.Unmarshal(text, &record)
	}
	if err != nil {
		var none T
		return none, false, s.told(err)
	}
	return record, found, nil
}

// Put is [Shelf.Put].
func (s Typed[T]) Put(ctx context.Context, name string, record T) error {
	text, err := json.Marshal(record)
	if err == nil {
		err = s.shelf.Put(ctx, name, text)
	}
	return s.told(err)
}

// Delete is [Shelf.Delete].
func (s Typed[T]) Delete(ctx context.Context, name string) error {
	return s.told(s.shelf.Delete(ctx, name))
}

func (s Typed[T]) told(err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", s.shelf.records.kind, err)
	}
	return nil
}
