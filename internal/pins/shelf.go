package pins

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
	kind = "pins"
	// readFor is how long a record that was read tells the age of a pin. Claims always read:
	// an agent that gets the name of another is known here before it is let in.
	readFor = 5 * time.Minute
)

// record is what the shelf has of a name.
type record struct {
	Name string `json:"name"`
	Key  string `json:"key"`
	// Since is when the key got the name, 0 for before that was written down; Seen is when its
	// agent was here, to a day. In milliseconds.
	Since int64 `json:"since"`
	Seen  int64 `json:"seen"`
}

// reading is a record as it was read.
type reading struct {
	record
	at time.Time
}

func (p *Pins) get(ctx context.Context, name string) (record, bool, error) {
	return p.read(ctx, p.shelf.ID(name))
}

// read reads a record, and remembers it.
func (p *Pins) read(ctx context.Context, id string) (r record, found bool, err error) {
	if r, found, err = p.shelf.Read(ctx, id); err != nil {
		return r, false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if found {
		p.seen[id] = reading{r, time.Now()}
	} else {
		delete(p.seen, id)
	}
	return r, found, nil
}

func (p *Pins) remove(ctx context.Context, name string) error {
	if err := p.shelf.Delete(ctx, name); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.seen, p.shelf.ID(name))
	return nil
}

// drop removes a name that Redis has no room for, if nobody has used it for long: Redis may
// have been made to say so.
func (p *Pins) drop(ctx context.Context, name string, now time.Time) error {
	r, found, err := p.get(ctx, name)
	if err != nil || !found || now.Sub(time.UnixMilli(r.Seen)) <= p.kept {
		return err
	}
	return p.remove(ctx, name)
}

// all are the records of the shelf. Those that are damaged are nobody's.
func (p *Pins) all(ctx context.Context) ([]record, error) {
	ids, err := p.shelf.IDs(ctx)
	if err != nil {
		return nil, err
	}
	p.forgetGone(ids)
	var list []record
	for _, id := range ids {
		p.mu.Lock()
		known, found := p.seen[id]
		p.mu.Unlock()
		if !found || time.Since(known.at) > readFor {
			if known.record, found, err = p.read(ctx, id); err != nil && !errors.Is(err, keyring.ErrForged) {
				return nil, err
			}
		}
		if found {
			list = append(list, known.record)
		}
	}
	return list, nil
}

// forgetGone drops what was read of records that another hub has removed.
func (p *Pins) forgetGone(ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	for id := range p.seen {
		if !there[id] {
			delete(p.seen, id)
		}
	}
}

// Adopt takes in the names that a version before the shelf has written to Redis. It does so
// once in the life of a storage; see [keyring.Records.Adopt].
func (p *Pins) Adopt(ctx context.Context) error {
	return p.records.Adopt(ctx, keyring.MarksOfMachines, func(ctx context.Context) error {
		reply, err := p.db.Run(ctx, readScript)
		if err != nil {
			return fmt.Errorf("pins: %w", err)
		}
		for pair := range slices.Chunk(reply, 2) {
			if len(pair) < 2 {
				return errors.New("pins: a name without a value")
			}
			at, key, _ := strings.Cut(pair[1], " ")
			seen, err := strconv.ParseInt(at, 10, 64)
			if err != nil || key == "" {
				continue // it was nobody's before, either
			}
			_, found, err := p.get(ctx, pair[0])
			if err == nil && !found {
				err = p.shelf.Put(ctx, pair[0], record{Name: pair[0], Key: key, Seen: seen})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
