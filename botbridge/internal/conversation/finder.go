package conversation

import (
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// finder finds the requests that messages and buttons are about.
type finder struct {
	store  *state.Store
	runner *request.Runner
	logger *slog.Logger
}

// unfinished returns a request that can still be replaced, nil if it is over or gone.
func (f *finder) unfinished(ctx context.Context, id string) (*request.Record, error) {
	if id == "" {
		return nil, nil
	}
	rec, err := f.runner.Load(ctx, id)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case rec.Phase == request.Ended || rec.Phase == request.Over:
		return nil, nil
	}
	return &rec, nil
}

// active returns a user's unfinished requests, the oldest first; in a group only the
// group's own, because others can read the reply.
func (f *finder) active(ctx context.Context, tn *turn) ([]request.Record, error) {
	ids, err := f.store.Requests.ActiveOf(ctx, tn.who())
	if err != nil {
		return nil, err
	}
	var list []request.Record
	for _, id := range ids {
		rec, err := f.runner.Load(ctx, id)
		if err != nil {
			if mayPass(err) {
				return nil, err
			}
			continue
		}
		if !tn.Chat.Group || rec.Chat.ID == tn.Chat.ID {
			list = append(list, rec)
		}
	}
	return list, nil
}

// requestsOf returns a user's requests, the oldest first, with those that exist only as
// favourites at the end.
func (f *finder) requestsOf(ctx context.Context, who string, stars []state.Star) (list []request.Record, err error) {
	ids, err := f.store.Requests.Own(ctx, who)
	if err != nil {
		return nil, err
	}
	for _, star := range stars {
		ids = append(ids, star.Request)
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		rec, err := f.runner.Load(ctx, id)
		switch {
		case errors.Is(err, state.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		}
		if rec.Tenant() == who {
			list = append(list, rec)
		}
	}
	return list, nil
}

// requestOf returns the request that a button is about.
func (f *finder) requestOf(ctx context.Context, tn *turn, id string) (request.Record, error) {
	if _, err := uuid.Parse(id); err != nil || len(id) != 36 {
		return request.Record{}, errForged
	}
	rec, err := f.runner.Load(ctx, id)
	if err != nil {
		return rec, err
	}
	if rec.Platform != tn.Platform || rec.Chat.ID != tn.Chat.ID {
		f.logger.Warn("a button was pressed in a chat it does not belong to", "platform", tn.Platform)
		return rec, errForged
	}
	return rec, nil
}

// replied returns the request that a turn's message replies to, "" for none.
func (f *finder) replied(ctx context.Context, tn *turn) (string, error) {
	if tn.Message.ReplyTo == nil {
		return "", nil
	}
	return f.noted(ctx, tn, tn.Message.ReplyTo.ID)
}

// noted returns the request that a message in a turn's chat asked for or is about, "" for
// none.
func (f *finder) noted(ctx context.Context, tn *turn, message string) (id string, err error) {
	err = f.store.Get(ctx, request.MessageKind, messageName(tn, message), &id)
	if errors.Is(err, state.ErrNotFound) {
		return "", nil
	}
	return id, err
}

// findShown finds the bridge's pictures that a message replies to, unless it brings its
// own. It takes the hub's originals, not the platform's copies.
func (f *finder) findShown(ctx context.Context, tn *turn) error {
	if tn.shown != nil || tn.Message.ReplyTo == nil || len(tn.Message.Files) > 0 {
		return nil
	}
	var shown request.Shown
	err := f.store.Get(ctx, request.PictureKind, messageName(tn, tn.Message.ReplyTo.ID), &shown)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	rec, err := f.runner.Load(ctx, shown.Request)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, i := range shown.Outputs {
		if i >= 0 && i < len(rec.Outputs) {
			ref := rec.Outputs[i].Ref
			tn.shown = append(tn.shown, request.Input{Role: workflow.Image, From: &ref, Owner: rec.Tenant(), Cover: rec.Args.Spoiler})
		}
	}
	return nil
}
