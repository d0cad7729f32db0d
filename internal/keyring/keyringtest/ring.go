// Package keyringtest has a ring of keys for tests.
package keyringtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring"
)

// Store is a store in memory.
type Store struct {
	mu      sync.Mutex
	objects map[string]string
	away    bool
}

var _ keyring.Store = (*Store)(nil)

// NewStore returns an empty store.
func NewStore() *Store { return &Store{objects: map[string]string{}} }

// OldStore returns one whose ring a version before [keyring.Records] has made.
func OldStore(t testing.TB) *Store {
	t.Helper()
	s := NewStore()
	Open(t, s)
	for name, body := range s.objects {
		before, _, _ := strings.Cut(body, `,"signs":`)
		s.objects[name] = before + "}\n"
	}
	return s
}

// SetAway makes the store fail, or work again.
func (s *Store) SetAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// lock returns an error while the store is away.
func (s *Store) lock() error {
	s.mu.Lock()
	if s.away {
		return errors.New("the store is away")
	}
	return nil
}

// List implements [keyring.Store].
func (s *Store) List(context.Context) ([]string, error) {
	err := s.lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.objects)), err
}

// Read implements [keyring.Store].
func (s *Store) Read(_ context.Context, name string) ([]byte, bool, error) {
	err := s.lock()
	defer s.mu.Unlock()
	body, found := s.objects[name]
	return []byte(body), found, err
}

// Write implements [keyring.Store].
func (s *Store) Write(_ context.Context, name string, body []byte) error {
	err := s.lock()
	defer s.mu.Unlock()
	if err == nil {
		s.objects[name] = string(body)
	}
	return err
}

// Delete implements [keyring.Store].
func (s *Store) Delete(_ context.Context, name string) error {
	err := s.lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.objects, name)
	}
	return err
}

// Open returns the ring of a store, as a hub of its own has it.
func Open(t testing.TB, s *Store) *keyring.Ring {
	t.Helper()
	r, err := keyring.Open(t.Context(), keyring.Options{Store: s})
	require.NoError(t, err)
	return r
}

// New returns a ring of its own.
func New(t testing.TB) *keyring.Ring {
	t.Helper()
	return Open(t, NewStore())
}
