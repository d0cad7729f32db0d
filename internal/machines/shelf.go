package machines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/keyring"
)

const (
	// kind is that of the records on the shelf.
	kind = "machines"
	// sureFor is how long the shelf is not asked again about a token: workers show theirs with
	// each request. A token that was revoked at another hub, and that somebody writes back to
	// Redis, is good for that long.
	sureFor = 20 * time.Second
	// maxRefused bounds the names that Refused tells.
	maxRefused = 100
)

// record is what the shelf has of a machine.
type record struct {
	Name   string `json:"name"`
	Hash   string `json:"hash"`
	Issued int64  `json:"issued"` // in milliseconds
}

// plain is the record as Redis has it.
func (r record) plain() string { return strconv.FormatInt(r.Issued, 10) + " " + r.Hash }

// sure is a hash that was on the shelf.
type sure struct {
	hash string
	at   time.Time
}

func (m *Machines) put(ctx context.Context, r record) error {
	m.forget(r.Name)
	return m.shelf.Put(ctx, r.Name, r)
}

func (m *Machines) remove(ctx context.Context, name string) error {
	err := m.shelf.Delete(ctx, name)
	m.forget(name) // after, so that nobody has read it in between
	return err
}

func (m *Machines) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sure, name)
}

// counts reports whether the shelf has a hash for a machine.
func (m *Machines) counts(ctx context.Context, name, hash string) (bool, error) {
	m.mu.Lock()
	known := m.sure[name]
	m.mu.Unlock()
	if known.hash == hash && time.Since(known.at) < sureFor {
		return true, nil
	}
	r, found, err := m.shelf.Get(ctx, name)
	if errors.Is(err, keyring.ErrForged) {
		return false, nil
	}
	if err != nil || !found || r.Hash != hash {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sure[name] = sure{hash, time.Now()}
	return true, nil
}

// Refused are the names in Redis whose token no hub has put on the shelf, quoted, at most a
// hundred: somebody else has written them, or a hub of an older version.
func (m *Machines) Refused(ctx context.Context) (names []string, err error) {
	err = m.each(ctx, func(name, plain string) error {
		r, found, err := m.shelf.Get(ctx, name)
		if err != nil && !errors.Is(err, keyring.ErrForged) {
			return err
		}
		if (!found || r.plain() != plain) && len(names) < maxRefused {
			names = append(names, fmt.Sprintf("%.64q", name))
		}
		return nil
	})
	return names, err
}

// Adopt takes in the tokens that a version before the shelf has made. It does so once in the
// life of a storage; see [keyring.Records.Adopt].
func (m *Machines) Adopt(ctx context.Context) error {
	return m.records.Adopt(ctx, keyring.MarksOfMachines, func(ctx context.Context) error {
		return m.each(ctx, func(name, plain string) error {
			at, hash, _ := strings.Cut(plain, " ")
			issued, err := strconv.ParseInt(at, 10, 64)
			if err != nil {
				return nil //nolint:nilerr // it was no token before, either
			}
			_, found, err := m.shelf.Get(ctx, name)
			if err != nil || found {
				return err
			}
			return m.put(ctx, record{Name: name, Hash: hash, Issued: issued})
		})
	})
}

// each calls f for what Redis has of each machine.
func (m *Machines) each(ctx context.Context, f func(name, plain string) error) error {
	reply, err := m.db.Run(ctx, readScript)
	if err != nil {
		return fmt.Errorf("machines: %w", err)
	}
	for pair := range slices.Chunk(reply, 2) {
		if len(pair) < 2 {
			return errors.New("machines: a name without a value")
		}
		if err := f(pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}
