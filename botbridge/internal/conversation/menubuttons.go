package conversation

import (
	"context"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// menuButtons handles the buttons in the menu of a picture.
type menuButtons struct {
	gallery   *gallery
	sequels   *sequels
	menu      *pictureMenu
	workflows *workflows
	removals  *removals
	styles    *pictureStyles
	remixes   *remixes
}

// pressed handles the buttons of a picture's menu and the one that opens it. It returns
// false for any other button.
func (mb *menuButtons) pressed(ctx context.Context, tn *turn, rec request.Record, verb string) (bool, error) {
	act := mb.act(verb)
	if act == nil {
		return false, nil
	}
	if !mayRead(tn, rec) {
		tn.answer(ctx, "not_yours")
		return true, nil
	}
	return true, act(ctx, tn, rec)
}

// act returns what handles a button of the menu, nil if it is none.
func (mb *menuButtons) act(verb string) func(context.Context, *turn, request.Record) error {
	switch verb {
	case request.VerbMore:
		return mb.open
	case request.VerbBack:
		return mb.back
	case request.VerbWorkflow:
		return mb.workflows.pressed
	case request.VerbRemix:
		return mb.remixes.pressed
	case request.VerbStyles:
		return mb.styles.pressedStyles
	case request.VerbDelete:
		return mb.removals.pressedDelete
	case request.VerbDeleteNow:
		return mb.removals.pressedDeleteNow
	}
	if style, ok := strings.CutPrefix(verb, request.VerbStyle); ok {
		return func(ctx context.Context, tn *turn, rec request.Record) error {
			return mb.styles.pressedStyle(ctx, tn, rec, style)
		}
	}
	for _, about := range []string{request.VerbStar, request.VerbSubtle, request.VerbStrong} {
		if number, ok := strings.CutPrefix(verb, about); ok {
			if n, err := strconv.ParseUint(number, 10, 8); err == nil {
				return func(ctx context.Context, tn *turn, rec request.Record) error {
					return mb.pressedNumber(ctx, tn, rec, about, int(n))
				}
			}
		}
	}
	return nil
}

// back shows the menu again.
func (mb *menuButtons) back(ctx context.Context, tn *turn, rec request.Record) error {
	tn.answerText(ctx, "")
	return mb.menu.turn(ctx, tn, mb.menu.about(ctx, tn, rec))
}

// open handles the button under a picture that opens its menu.
func (mb *menuButtons) open(ctx context.Context, tn *turn, rec request.Record) error {
	tn.answerText(ctx, "")
	return mb.menu.post(ctx, tn, rec, mb.menu.about(ctx, tn, rec))
}

// pressedNumber handles a menu button for one picture; for 0 it asks which one.
func (mb *menuButtons) pressedNumber(ctx context.Context, tn *turn, rec request.Record, verb string, n int) error {
	if n > len(rec.Outputs) {
		tn.answer(ctx, "too_old")
		return nil
	}
	switch {
	case n == 0:
		tn.answerText(ctx, "")
		post := mb.menu.plain(tn, rec, tn.say("which_"+verb, locale.With{"n": len(rec.Outputs)}))
		post.Buttons = append(mb.menu.numbers(rec, verb), tn.buttons(rec.ID, request.VerbBack)...)
		return mb.menu.turn(ctx, tn, post)
	case verb == request.VerbStar:
		return mb.gallery.star(ctx, tn, rec, n)
	}
	tn.answer(ctx, "on_it")
	return mb.sequels.vary(ctx, tn, rec, n, verb)
}
