package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/job"
)

// Pin is what one input of a job meant when the job was accepted.
type Pin struct {
	// Ref is the input as the graph names it.
	Ref job.FileRef `json:"ref"`
	// Key is the blob; empty while the bytes were still on the instance that made them.
	Key string `json:"key,omitempty"`
	// Size is in bytes, and SHA256 lowercase hex, when Key is set.
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// Source is the file that is meant if Key is empty.
	Source *Source `json:"source,omitempty"`
}

// Pins are the inputs of a job that the hub has.
type Pins []Pin

// pins is the form of Pins in a job's record.
type pins struct {
	Version int  `json:"v"`
	Pins    Pins `json:"pins"`
}

// Encode writes the pins for a job's record; nil when there are none.
func (p Pins) Encode() ([]byte, error) {
	if len(p) == 0 {
		return nil, nil
	}
	return json.Marshal(pins{Version: 1, Pins: p})
}

// DecodePins reads what Encode wrote.
func DecodePins(data []byte) (Pins, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var p pins
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("files: pins: %w", err)
	}
	return p.Pins, nil
}

// Keys returns the blobs that the pins need; Sweep must be told about them while the job is waiting
// or running.
func (p Pins) Keys() []string {
	var keys []string
	for _, pin := range p {
		if pin.Key != "" {
			keys = append(keys, pin.Key)
		}
	}
	return keys
}

// Pin notes what a job's inputs mean now, so that a later upload under the same name does not
// change the job. Inputs that the hub does not know are left out: they may be the instance's own
// files. The blobs are safe from Sweep for an hour, time enough for the job to be queued.
func (s *Store) Pin(ctx context.Context, tenant string, refs []job.FileRef) (Pins, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	var found Pins
	var used []any
	seen := map[job.FileRef]bool{}
	for _, ref := range refs {
		if seen[ref] {
			continue
		}
		seen[ref] = true
		pin, err := s.pin(ctx, tenant, ref)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, pin)
		if p, ok := placeOf(ref); ok {
			used = append(used, tenant, p.typ, p.dir, p.name)
		}
	}
	if len(used) > 0 {
		if _, err := s.db.Run(ctx, useScript, used...); err != nil {
			return nil, fmt.Errorf("files: use: %w", err)
		}
	}
	return found, nil
}

// pin holds the blob and looks again: between the look and the hold, the name may have been given
// to another blob and the old one swept.
func (s *Store) pin(ctx context.Context, tenant string, ref job.FileRef) (Pin, error) {
	e, err := s.Resolve(ctx, tenant, ref)
	for {
		if err != nil {
			return Pin{}, err
		}
		if !e.Stored() {
			return Pin{Ref: ref, Source: e.Source}, nil
		}
		if err := s.blobs.hold(ctx, e.Key); err != nil {
			return Pin{}, err
		}
		held := e.Key
		if e, err = s.Resolve(ctx, tenant, ref); err == nil && e.Key == held {
			return Pin{Ref: ref, Key: e.Key, Size: e.Size, SHA256: e.SHA256}, nil
		}
	}
}
