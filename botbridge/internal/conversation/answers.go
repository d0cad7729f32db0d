package conversation

import (
	"context"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// verbAnswer is the verb of the button that opens a form for the answer to a question.
const verbAnswer = "qa"

// answerID is the id in the data of the button under a question.
func answerID(q question) string { return request.IDOf("answer/" + q.By) }

// buttons returns the buttons under a question that can be answered in words, where
// the platform has forms.
func (qs *questions) buttons(tn *turn, q question) [][]platform.Button {
	if !tn.p.Limits().Forms || fieldFor(q.Needs) == "" {
		return nil
	}
	return tn.buttons(answerID(q), verbAnswer)
}

// fieldFor returns the key of the label for the words that a question asks for, "" if it
// asks for a picture.
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

// answers takes what users say or fill in as answers to open questions.
type answers struct {
	runner    *request.Runner
	commands  *repertoire
	find      *finder
	turns     *turns
	questions *questions
	asker     *asker
}

// form returns the form for answering a question; nil if the question is no longer
// open, or the store does not respond in time.
func (an *answers) form(ctx context.Context, tn *turn, id string) *platform.Form {
	known, err := an.turns.of(ctx, tn.Event)
	if err != nil {
		return nil
	}
	q, err := an.questions.open(ctx, known)
	if err != nil || q == nil || answerID(*q) != id || fieldFor(q.Needs) == "" {
		return nil
	}
	return &platform.Form{Title: known.say("button_"+verbAnswer, nil), Data: tn.Data, Fields: []platform.Field{
		{Name: fieldPrompt, Label: known.say(fieldFor(q.Needs), nil), Long: q.Needs != needsNumber, Required: true},
	}}
}

// pressed handles an answer that was filled in. The question is found only for the
// user that it was put to.
func (an *answers) pressed(ctx context.Context, tn *turn, id string) error {
	q, err := an.questions.open(ctx, tn)
	if err != nil {
		return err
	}
	if q == nil || answerID(*q) != id {
		// This very event may have answered it before the bridge was killed.
		if _, err := an.runner.Continue(driving(ctx), request.IDOf(tn.Key())); mayPass(err) {
			return err
		}
		tn.answer(ctx, "it_is_over")
		return nil
	}
	c := an.commands.byName[q.Command]
	tn.rest = strings.TrimSpace(tn.Filled[fieldPrompt])
	if tn.rest == "" || c == nil || !fill(tn, c, q) {
		tn.answer(ctx, "answer_odd")
		return nil
	}
	tn.answer(ctx, "on_it")
	return an.asker.ask(ctx, tn, c)
}
