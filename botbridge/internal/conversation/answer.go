package conversation

import (
	"context"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// verbAnswer is the verb of the button that opens a form for the answer to a question.
const verbAnswer = "qa"

// answerID is what the button under a question carries.
func answerID(q question) string { return request.IDOf("answer/" + q.By) }

// answerButtons are below a question that words answer, where a platform has forms.
func (t *Talk) answerButtons(tn *turn, q question) [][]platform.Button {
	if !tn.p.Limits().Forms || fieldFor(q.Needs) == "" {
		return nil
	}
	return request.Buttons(t.o.Texts, tn.language, answerID(q), verbAnswer)
}

// fieldFor is the key of what a question asks for in words, "" if it asks for a picture.
func fieldFor(needs string) string {
	switch needs {
	case needsWords:
		return "argument_prompt"
	case needsChange:
		return "field_change"
	case needsNumber:
		return "field_number"
	}
	return ""
}

// answerForm is the form for the answer to a question; nil if nobody waits for that, or the
// store does not say so in time.
func (t *Talk) answerForm(ctx context.Context, tn *turn, id string) *platform.Form {
	known, err := t.turnOf(ctx, tn.Event)
	if err != nil {
		return nil
	}
	q, err := t.asked(ctx, known)
	if err != nil || q == nil || answerID(*q) != id || fieldFor(q.Needs) == "" {
		return nil
	}
	return &platform.Form{Title: t.say(known, "button_"+verbAnswer, nil), Data: tn.Data, Fields: []platform.Field{
		{Name: fieldPrompt, Label: t.say(known, fieldFor(q.Needs), nil), Long: q.Needs != needsNumber, Required: true},
	}}
}

// pressedAnswer handles the answer to a question that was filled in. Only who was asked has
// the question.
func (t *Talk) pressedAnswer(ctx context.Context, tn *turn, id string) error {
	answer := func(key string) { t.o.Outbox.Answer(ctx, tn.p, tn.Press, t.say(tn, key, nil)) }
	q, err := t.asked(ctx, tn)
	if err != nil {
		return err
	}
	if q == nil || answerID(*q) != id {
		// It may be this event that has answered it, before the bridge ended.
		if _, err := t.o.Runner.Continue(t.driving(ctx), request.IDOf(tn.Key())); mayPass(err) {
			return err
		}
		answer("it_is_over")
		return nil
	}
	c := t.byName[q.Command]
	tn.rest = strings.TrimSpace(tn.Filled[fieldPrompt])
	if tn.rest == "" || c == nil || !t.fill(tn, c, q) {
		answer("answer_odd")
		return nil
	}
	answer("on_it")
	return t.ask(ctx, tn, c)
}
