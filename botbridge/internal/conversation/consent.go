package conversation

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// Terms are what users have to accept before their first request.
type Terms struct {
	// Texts are by language.
	Texts map[string]string
	// Version identifies the texts: a new one has to be accepted again.
	Version string
}

// in returns the terms in a language, or else in one that they have.
func (t *Terms) in(language string) string {
	for _, candidate := range append([]string{language, locale.Default}, slices.Sorted(maps.Keys(t.Texts))...) {
		if text := t.Texts[candidate]; text != "" {
			return text
		}
	}
	return ""
}

// unaccepted is an event that waits for its author to accept the terms. Older and newer
// bridges read its JSON.
type unaccepted struct {
	Event   platform.Event `json:"event"`
	Version string         `json:"version"`
	// Done means that the event was handled.
	Done bool `json:"done,omitempty"`
}

const (
	// verbAccept is the verb of the button that accepts the terms.
	verbAccept = "te"
	// termsKind is the kind of the records of what users have accepted.
	termsKind = "terms"
)

// errTerms means that the user has to accept the terms first.
var errTerms = errors.New("conversation: the terms are not accepted")

// consent knows who has accepted the terms, and shows them.
type consent struct {
	store *state.Store
	terms *Terms
}

// agreed returns errTerms if the user has not accepted the terms.
func (cs *consent) agreed(ctx context.Context, tn *turn) error {
	if cs.terms == nil || tn.agreed {
		return nil
	}
	var version string
	err := cs.store.Get(ctx, termsKind, tn.who(), &version)
	switch {
	case err != nil && !errors.Is(err, state.ErrNotFound):
		return err
	case version != cs.terms.Version:
		return errTerms
	}
	tn.agreed = true
	return nil
}

// termsID returns the id of an event that waits for a version to be accepted.
func termsID(e platform.Event, version string) string {
	return request.IDOf("terms/" + version + "/" + e.Key())
}

// ask shows the terms and keeps the event until they are accepted.
func (cs *consent) ask(ctx context.Context, tn *turn, e platform.Event) error {
	id := termsID(e, cs.terms.Version)
	if err := cs.store.People.Hold(ctx, tn.who(), id, unaccepted{Event: e, Version: cs.terms.Version}); err != nil {
		return err
	}
	terms := cs.terms.in(tn.language)
	parts := platform.Split(terms+"\n\n"+tn.say("terms_ask", nil), tn.p.Limits().Text)
	for i, part := range parts {
		post := platform.Post{Text: part, ReplyTo: e.Message.ID}
		if i == len(parts)-1 {
			post.Buttons = append(withLinks(nil, linksOf(terms)), tn.buttons(id, verbAccept)...)
		}
		if err := tn.post(ctx, post); err != nil {
			return err
		}
	}
	return nil
}

// pressedAccept records that a user accepts the terms, and handles the event that waits.
// Until that is done it may be pressed again: a request is named after its event, so it is
// not made twice.
func (t *Talk) pressedAccept(ctx context.Context, tn *turn, id string) error {
	if _, err := uuid.Parse(id); err != nil || len(id) != 36 || t.o.Terms == nil {
		tn.answer(ctx, "too_old")
		return nil
	}
	var u unaccepted
	err := t.o.Store.People.Held(ctx, id, &u)
	switch {
	case err != nil && !errors.Is(err, state.ErrNotFound):
		return err
	case err != nil, u.Event.Platform != tn.Platform, u.Event.Chat.ID != tn.Chat.ID, termsID(u.Event, u.Version) != id:
		tn.answer(ctx, "too_old")
		return nil
	case u.Event.User.ID != tn.User.ID:
		tn.answer(ctx, "not_yours")
		return nil
	case u.Done:
		tn.answer(ctx, "it_is_over")
		return nil
	}
	if u.Version == t.o.Terms.Version {
		if err := t.o.Store.Put(ctx, termsKind, tn.who(), u.Version, 0); err != nil {
			return err
		}
		tn.answer(ctx, "terms_accepted")
		if err := tn.edit(ctx, tn.Message.ID, platform.Post{Text: tn.say("terms_accepted", nil)}); err != nil {
			return err
		}
	} else {
		tn.answer(ctx, "terms_changed") // they are shown instead of making the request
	}
	waiting, err := t.turns.of(ctx, u.Event)
	if err != nil {
		return err
	}
	if err := t.act(ctx, waiting); err != nil {
		return err
	}
	u.Done = true
	return t.o.Store.People.Hold(ctx, tn.who(), id, u)
}
