package conversation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

const (
	// knockKind is where strangers are kept that operators were told of, deskKind where an
	// operator can be told.
	knockKind = "knock"
	knockKeep = 7 * 24 * time.Hour
	deskKind  = "desk"
	deskKeep  = 365 * 24 * time.Hour
	// maxKnocks is of how many strangers operators are told in a day.
	maxKnocks = 30
)

// The verbs of the buttons about a stranger.
const (
	verbLetIn   = "li"
	verbKeepOut = "lo"
)

// knock is a stranger, for the operators.
type knock struct {
	Chat     platform.Chat `json:"chat"`
	User     platform.User `json:"user"`
	Language string        `json:"language"`
}

// desk is where an operator can be told something.
type desk struct {
	Chat     string `json:"chat"`
	Language string `json:"language"`
}

// admission lets operators admit people and groups from the chat.
type admission struct {
	store  *state.Store
	outbox *outbox.Outbox
	guard  *limits.Guard
	voice  *voice

	mu    sync.Mutex
	desks map[string]desk // as stored, by operator
}

// allow answers /allow ID, and /allow alone in a group, which then is admitted.
func (ad *admission) allow(ctx context.Context, tn *turn) error { return ad.change(ctx, tn, true) }

// disallow answers /disallow, which takes that back.
func (ad *admission) disallow(ctx context.Context, tn *turn) error { return ad.change(ctx, tn, false) }

func (ad *admission) change(ctx context.Context, tn *turn, admit bool) error {
	who, ok := named(tn, tn.rest)
	if tn.rest == "" && tn.Chat.Group {
		who, ok = request.Who(tn.Platform, tn.Chat.ID), true
	}
	if !ok {
		return tn.reply(ctx, tn.say("usage_allow", nil))
	}
	key := "disallowed"
	if admit {
		key = "allowed"
	}
	if err := ad.guard.Allow(ctx, who, tn.who(), admit); err != nil {
		return err
	}
	return tn.reply(ctx, tn.say(key, locale.With{"who": who}))
}

// sit notes where an operator can be told of strangers: where they last wrote alone.
func (ad *admission) sit(ctx context.Context, tn *turn) error {
	at := desk{tn.Chat.ID, tn.language}
	ad.mu.Lock()
	known := ad.desks[tn.who()] == at
	ad.mu.Unlock()
	if known || tn.Chat.Group || !ad.guard.Admin(tn.Event) {
		return nil
	}
	if err := ad.store.Put(ctx, deskKind, tn.who(), at, deskKeep); err != nil {
		return err
	}
	ad.mu.Lock()
	defer ad.mu.Unlock()
	ad.desks[tn.who()] = at
	return nil
}

// knock tells the operators of a stranger, once a day, and returns the key of what the stranger
// is told.
func (ad *admission) knock(ctx context.Context, tn *turn) (key string, err error) {
	key = "private"
	admins := ad.guard.Admins(tn.Platform)
	if len(admins) == 0 || tn.Kind != platform.Said {
		return key, nil
	}
	for _, bound := range []struct {
		who, thing string
		most       int
	}{{tn.who(), tn.Key(), 1}, {tn.Platform, tn.who(), maxKnocks}} {
		if ok, err := ad.store.Usage.Count(ctx, knockKind, bound.who, request.IDOf(bound.thing), bound.most); err != nil || !ok {
			return key, err
		}
	}
	id := request.IDOf(knockKind + tn.who())
	if err := ad.store.Put(ctx, knockKind, id, knock{tn.Chat, tn.User, tn.language}, knockKeep); err != nil {
		return key, err
	}
	for _, admin := range admins {
		var at desk
		err := ad.store.Get(ctx, deskKind, admin, &at)
		if errors.Is(err, state.ErrNotFound) {
			continue // they have never written to the bot
		}
		if err != nil {
			return key, err
		}
		texts := ad.voice.texts
		_, err = ad.outbox.Send(ctx, tn.p, platform.Chat{ID: at.Chat}, platform.Post{
			Text:    texts.Say(at.Language, "knock", locale.With{"name": shownName(tn.User), "who": tn.who()}),
			Buttons: request.Buttons(texts, at.Language, id, verbLetIn, verbKeepOut),
		})
		if mayPass(err) {
			return key, err
		}
		key = "private_asked"
	}
	return key, nil
}

// shownName returns a stranger's name as operators read it. Signs that are not seen could turn
// around what follows it: the id.
func shownName(u platform.User) string {
	return platform.Clip(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, u.Name), 60)
}

// pressed handles a button about a stranger.
func (ad *admission) pressed(ctx context.Context, tn *turn, verb, id string) error {
	var k knock
	err := ad.store.Get(ctx, knockKind, id, &k)
	if errors.Is(err, state.ErrNotFound) || err == nil && !ad.guard.Admin(tn.Event) {
		tn.answer(ctx, "too_old")
		return nil
	}
	if err != nil {
		return err
	}
	who, key := request.Who(tn.Platform, k.User.ID), "kept_out"
	if verb == verbLetIn {
		key = "allowed"
		if err := ad.guard.Allow(ctx, who, tn.who(), true); err != nil {
			return err
		}
		_, err := ad.outbox.Send(ctx, tn.p, k.Chat, platform.Post{Text: ad.voice.texts.Say(k.Language, "let_in", nil)})
		if mayPass(err) {
			return err
		}
	}
	tn.answerText(ctx, "")
	return tn.edit(ctx, tn.Message.ID, platform.Post{Text: tn.say(key, locale.With{"who": fmt.Sprintf("%s (%s)", shownName(k.User), who)})})
}
