package conversation

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// What a command can lack; also the key of the text that asks for it.
const (
	needsPicture = "photo_needed"
	needsMore    = "more_needed" // another picture
	needsMask    = "mask_needed"
	needsWords   = "prompt_needed"
	needsChange  = "change_needed" // words for a picture that came without any
	needsNumber  = "number_needed" // which one of several pictures
)

const (
	// questionKind is where older bridges store questions.
	questionKind = "question"
	// questionKeep is how long a question stays open.
	questionKeep = 10 * time.Minute
)

// question is a command that lacks something. There is one for each user and chat, and it
// is stored before it is asked. Older and newer bridges read its JSON.
type question struct {
	Command string          `json:"command"`
	Rest    string          `json:"rest,omitempty"`
	Inputs  []request.Input `json:"inputs,omitempty"`
	// Choices are the pictures to choose from.
	Choices []request.Input `json:"choices,omitempty"`
	Needs   string          `json:"needs"`
	// Better means that the user wants better words.
	Better bool `json:"better,omitempty"`
	// By is the event that caused it, which is not an answer if it is handled again.
	By string `json:"by"`
	// Asked is the message with the question, known in groups: there only a reply to it is
	// an answer.
	Asked string `json:"asked,omitempty"`
	// At is when it was asked.
	At time.Time `json:"at,omitzero"`
	// old means that it was stored by an older bridge.
	old bool
}

// questionName returns the name of the question to a turn's user.
func questionName(tn *turn) string {
	return strings.Join([]string{tn.Platform, tn.Chat.ID, tn.Chat.Topic, tn.User.ID}, "/")
}

// questionID returns the id that the question is held under.
func questionID(tn *turn) string { return request.IDOf("question/" + questionName(tn)) }

// lacks returns what a command still needs, "" if it has everything.
func lacks(c *workflow.Command, args workflow.Args, inputs, choices []request.Input) string {
	switch {
	case c.Takes(workflow.Image) && !has(inputs, workflow.Image) && len(choices) > 1:
		return needsNumber
	case c.Takes(workflow.Image) && !has(inputs, workflow.Image):
		return needsPicture
	case count(inputs, workflow.Image) < c.Images():
		return needsMore
	case c.Takes(workflow.Mask) && !has(inputs, workflow.Mask):
		return needsMask
	case c.Takes(workflow.Prompt) && args.Prompt == "" && !c.Takes(workflow.Image):
		return needsWords
	}
	return ""
}

// questions asks users for what a command lacks.
type questions struct {
	store *state.Store
}

// put stores and asks a question. The next message answers it.
func (qs *questions) put(ctx context.Context, tn *turn, c *workflow.Command, q question) error {
	q.Command, q.By, q.Better, q.At = c.Name, tn.Key(), tn.better, time.Now()
	if err := qs.store.People.Hold(ctx, tn.who(), questionID(tn), q); err != nil {
		return err
	}
	return qs.askFor(ctx, tn, q)
}

// askFor asks a stored question.
func (qs *questions) askFor(ctx context.Context, tn *turn, q question) error {
	text := tn.say(q.Needs, locale.With{"command": q.Command, "n": len(q.Choices), "next": count(q.Inputs, workflow.Image) + 1})
	if tn.Chat.Group {
		text += " " + tn.say("answer_here", nil)
	}
	ids, err := tn.send(ctx, platform.Post{Text: text, ReplyTo: tn.Message.ID, Press: tn.Press, Asks: true, Buttons: qs.buttons(tn, q)})
	if err != nil || !tn.Chat.Group || len(ids) == 0 {
		return err
	}
	q.Asked = ids[0]
	return qs.store.People.Hold(ctx, tn.who(), questionID(tn), q)
}

// open returns the open question to a turn's user, nil if there is none.
func (qs *questions) open(ctx context.Context, tn *turn) (*question, error) {
	var q question
	err := qs.store.People.Held(ctx, questionID(tn), &q)
	if errors.Is(err, state.ErrNotFound) {
		err = qs.store.Get(ctx, questionKind, questionName(tn), &q)
		q.old = err == nil
	}
	switch {
	case errors.Is(err, state.ErrNotFound), err == nil && !q.old && time.Since(q.At) > questionKeep:
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	return &q, err
}

// drop closes the open question to a turn's user, if there is one.
func (qs *questions) drop(ctx context.Context, tn *turn) error {
	q, err := qs.open(ctx, tn)
	switch {
	case q == nil, err != nil:
		return err
	case q.old:
		return qs.store.Put(ctx, questionKind, questionName(tn), nil, 0)
	}
	return qs.store.People.Release(ctx, tn.who(), questionID(tn))
}

// said handles a message if it answers a question, and reports whether it does. Whoever
// changes the subject is not asked again.
func (an *answers) said(ctx context.Context, tn *turn) (bool, error) {
	if tn.Kind == platform.Edited {
		return false, nil
	}
	q, err := an.questions.open(ctx, tn)
	if err != nil {
		return false, err
	}
	if q == nil {
		// The event may have answered it before, if it is handled again.
		rec, err := an.runner.Load(ctx, request.IDOf(tn.Key()))
		if errors.Is(err, state.ErrNotFound) {
			return false, nil
		}
		if err == nil {
			_, err = an.runner.Continue(driving(ctx), rec.ID)
		}
		return true, err
	}
	if q.By == tn.Key() {
		return true, an.questions.askFor(ctx, tn, *q)
	}
	if tn.Chat.Group && !tn.Addressed && (tn.Message.ReplyTo == nil || tn.Message.ReplyTo.ID != q.Asked) {
		return false, nil
	}
	c := an.commands.byName[q.Command]
	if err := an.find.findShown(ctx, tn); err != nil {
		return false, err
	}
	if c == nil || !fill(tn, c, q) {
		return false, an.questions.drop(ctx, tn)
	}
	return true, an.asker.ask(ctx, tn, c)
}

// fill completes an answer with the question's command, and reports whether it is an
// answer.
func fill(tn *turn, c *workflow.Command, q *question) bool {
	words, given := tn.rest, q.Inputs
	brings := len(tn.shown) > 0 || slices.ContainsFunc(filesWith(tn), usable)
	switch q.Needs {
	case needsPicture, needsMore, needsMask:
		args, err := c.Parse(q.Rest)
		if !brings && (words == "" || !c.Takes(workflow.Prompt) || err != nil || args.Prompt != "") {
			return false
		}
	case needsNumber:
		number, rest := pick(words, len(q.Choices))
		if number == 0 {
			return false
		}
		words, given = rest, append(given, q.Choices[number-1])
	case needsWords, needsChange:
		if words == "" || len(tn.Message.Files) > 0 {
			return false
		}
	}
	tn.given, tn.better, tn.answers = given, q.Better, q
	if q.Rest != "" && words != "" {
		// Even after "--no text", these words are for the prompt.
		words = q.Rest + " --prompt " + words
	}
	words = cmp.Or(words, q.Rest)
	tn.rest = words
	return true
}

// cancel closes the open question and says so; false if there is none. It says so
// first, because the same /cancel, handled again, must not stop a request instead.
func (qs *questions) cancel(ctx context.Context, tn *turn) (bool, error) {
	q, err := qs.open(ctx, tn)
	if q == nil || err != nil {
		return false, err
	}
	if err := tn.reply(ctx, tn.say("question_over", nil)); err != nil {
		return true, err
	}
	return true, qs.drop(ctx, tn)
}
