package request

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

const (
	// movedKind is the kind of values that are the new id of a chat, by its old one.
	movedKind = "moved"
	// movedKeep is longer than any request of the old chat is known, favourites included.
	movedKeep = 365 * 24 * time.Hour
	// maxMoves bounds the moved chats that are known in memory.
	maxMoves = 10_000
)

// Moved notes that a chat has a new id. Requests of the old one go on in the new one; those
// in progress even if it cannot be stored now.
func (r *Runner) Moved(ctx context.Context, platformName, from, to string) error {
	name := Who(platformName, from)
	r.mu.Lock()
	if len(r.moves) >= maxMoves {
		clear(r.moves)
	}
	r.moves[name] = to
	r.mu.Unlock()
	return r.o.Store.Put(ctx, movedKind, name, to, movedKeep)
}

// load reads a request and its version, in the chat that its own has become.
func (r *Runner) load(ctx context.Context, id string) (rec Record, version int64, err error) {
	if version, err = r.o.Store.Load(ctx, id, &rec); err != nil || !rec.Chat.Group {
		return rec, version, err
	}
	var to string
	switch err = r.o.Store.Get(ctx, movedKind, Who(rec.Platform, rec.Chat.ID), &to); {
	case err == nil:
		rec.moveTo(to)
	case !errors.Is(err, state.ErrNotFound):
		return rec, version, fmt.Errorf("asking where a chat is: %w", err)
	}
	return rec, version, nil
}

// moveTo continues a request in another chat. The messages of the old one are out of reach,
// and their ids may be those of other messages here.
func (r *Record) moveTo(chat string) {
	r.Chat = platform.Chat{ID: chat, Group: r.Chat.Group}
	r.Message, r.Status, r.Tellings, r.Copies = "", "", 0, nil
	for i := range r.Outputs {
		r.Outputs[i].Message = ""
	}
	for i := range r.Texts {
		r.Texts[i].Message = ""
	}
}

// moveAlong goes on in the chat that that of the request has become, and reports whether it
// has.
func (j *job) moveAlong(ctx context.Context) (bool, error) {
	j.r.mu.Lock()
	to := j.r.moves[Who(j.rec.Platform, j.rec.Chat.ID)]
	j.r.mu.Unlock()
	if to == "" {
		return false, nil
	}
	j.rec.moveTo(to)
	return true, j.save(ctx)
}
