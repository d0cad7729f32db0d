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
	// movedKind maps the old ids of chats to the new ones.
	movedKind = "moved"
	// movedKeep outlasts every request of the old chat, favourites included.
	movedKeep = 365 * 24 * time.Hour
	// maxMoves bounds the moved chats that are kept in memory.
	maxMoves = 10_000
)

// Moved notes that a chat has a new id, where its requests go on; those in progress do so
// even if this cannot be stored right now.
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

// load reads a request and its version, with its chat's current id.
func (r *Runner) load(ctx context.Context, id string) (rec Record, version int64, err error) {
	if version, err = r.o.Store.Requests.Load(ctx, id, &rec); err != nil || !rec.Chat.Group {
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

// moveTo moves a request to another chat. The old chat's messages are out of reach, and
// their ids may mean other messages in the new one.
func (r *Record) moveTo(chat string) {
	r.Chat = platform.Chat{ID: chat, Group: r.Chat.Group}
	r.Message, r.Status, r.Tellings, r.Told, r.Copies = "", "", 0, "", nil
	for i := range r.Outputs {
		r.Outputs[i].Message = ""
	}
	for i := range r.Texts {
		r.Texts[i].Message = ""
	}
}

// moveAlong moves the request along with its chat, and reports whether the chat has moved.
func (j *job) moveAlong(ctx context.Context) (bool, error) {
	j.r.mu.Lock()
	to := j.r.moves[Who(j.rec.Platform, j.rec.Chat.ID)]
	j.r.mu.Unlock()
	if to == "" {
		return false, nil
	}
	j.rec.moveTo(to)
	return true, j.entry.save(ctx)
}
