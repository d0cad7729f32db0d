package conversation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

const (
	// recipeKind is where recipes are kept that were read from files.
	recipeKind = "recipe"
	// verbRecipe makes a picture by one.
	verbRecipe = "rc"
	// maxRecipeFile bounds what is read of a file, and recipeTimeout how long that may take.
	maxRecipeFile = 64 << 20
	recipeTimeout = 30 * time.Second
)

// recipe is one that was read from a file, and the message with the file.
type recipe struct {
	workflow.Recipe
	Chat    string `json:"chat"`
	Message string `json:"message"`
}

// recipes tells how the pictures were made that people bring, and makes others like them.
type recipes struct {
	store    *state.Store
	guard    *limits.Guard
	commands *repertoire
	find     *finder
	intake   *intake
}

// read reads the file that a message brings or replies to, unless the bridge has made it. It
// returns false if there is none, or its author was told that it says nothing.
func (rc *recipes) read(ctx context.Context, tn *turn) (r recipe, there, ok bool, err error) {
	files := filesWith(tn)
	at := slices.IndexFunc(files, func(f platform.File) bool { return strings.HasPrefix(f.Type, "image/") || f.Type == "" })
	if at < 0 {
		return r, false, false, nil
	}
	r.Chat, r.Message = tn.Chat.ID, tn.Message.ID
	if len(tn.Message.Files) == 0 {
		if id, err := rc.find.replied(ctx, tn); id != "" || err != nil {
			return r, false, false, err
		}
		r.Message = tn.Message.ReplyTo.ID
	}
	reading, cancel := context.WithTimeout(ctx, recipeTimeout)
	defer cancel()
	body, err := tn.p.Open(reading, files[at])
	if err == nil {
		defer body.Close()
		r.Recipe, ok = workflow.ReadRecipe(io.LimitReader(body, maxRecipeFile))
	}
	switch {
	case ctx.Err() != nil:
		return r, true, false, ctx.Err()
	case err != nil:
		return r, true, false, tn.reply(ctx, tn.say("input_gone", nil))
	case !ok:
		return r, true, false, tn.reply(ctx, tn.say("recipe_none", nil))
	case !rc.guard.Takes(ctx, r.Words()):
		return r, true, false, tn.reply(ctx, tn.say("words_refused", nil))
	}
	return r, true, true, nil
}

// info says how the picture that a message brings was made. It returns false if it brings none.
func (rc *recipes) info(ctx context.Context, tn *turn) (bool, error) {
	r, there, ok, err := rc.read(ctx, tn)
	if !ok {
		return there, err
	}
	post := platform.Post{Text: rc.text(tn, r), ReplyTo: tn.Message.ID, Private: true}
	if rc.command(tn) != nil {
		id := request.IDOf(recipeKind + tn.Key())
		if err := rc.store.Put(ctx, recipeKind, id, r, request.MessageKeep); err != nil {
			return true, err
		}
		post.Buttons = tn.buttons(id, verbRecipe)
	}
	return true, tn.post(ctx, post)
}

// command returns what makes a picture by a recipe, nil if nothing does.
func (rc *recipes) command(tn *turn) *workflow.Command {
	c := rc.commands.fromWords(tn)
	if c == nil || !c.Takes(workflow.Prompt) || len(roles(c)) > 0 {
		return nil
	}
	return c
}

func (rc *recipes) text(tn *turn, r recipe) string {
	var lines, facts []string
	line := func(key, name, value string) {
		if value != "" {
			lines = append(lines, tn.say(key, locale.With{name: value}))
		}
	}
	fact := func(text string, known bool) {
		if known {
			facts = append(facts, text)
		}
	}
	if r.Prompt != "" {
		lines = append(lines, platform.Clip(r.Prompt, infoWords))
	}
	line("info_no", "words", platform.Clip(r.Negative, infoWords/2))
	line("info_model", "model", r.Model)
	fact(tn.say("caption_seed", locale.With{"seed": r.Seed}), r.SeedGiven)
	fact(fmt.Sprintf("%dx%d", r.Width, r.Height), r.Width > 0)
	fact(tn.say("info_steps", locale.With{"steps": r.Steps}), r.Steps > 0)
	fact("CFG "+r.CFG, r.CFG != "")
	fact(r.Sampler, r.Sampler != "")
	fact(r.Scheduler, r.Scheduler != "")
	if len(facts) > 0 {
		lines = append(lines, strings.Join(facts, " · "))
	}
	return strings.Join(lines, "\n")
}

// remix makes a picture by the recipe of the one that a message brings, with other words. It
// returns false if it brings none.
func (rc *recipes) remix(ctx context.Context, tn *turn) (bool, error) {
	if tn.rest == "" {
		return rc.info(ctx, tn)
	}
	r, there, ok, err := rc.read(ctx, tn)
	c := rc.command(tn)
	if !ok || c == nil {
		return there, err
	}
	fresh, err := c.Parse(tn.rest)
	if err != nil {
		return true, tn.complain(ctx, err)
	}
	return true, rc.make(ctx, tn, c, r, fresh)
}

// pressed makes a picture by a recipe as it is. Its id can be guessed, so the recipe has to be
// of the same chat: others are nobody's business.
func (rc *recipes) pressed(ctx context.Context, tn *turn, id string) error {
	var r recipe
	err := rc.store.Get(ctx, recipeKind, id, &r)
	c := rc.command(tn)
	if errors.Is(err, state.ErrNotFound) || err == nil && (c == nil || r.Chat != tn.Chat.ID) {
		tn.answer(ctx, "too_old")
		return nil
	}
	if err != nil {
		return err
	}
	tn.answer(ctx, "on_it")
	return rc.make(ctx, tn, c, r, workflow.Args{})
}

// make makes a picture by a recipe. A sampler that the fleet does not know is left out.
func (rc *recipes) make(ctx context.Context, tn *turn, c *workflow.Command, r recipe, fresh workflow.Args) error {
	args := r.For(c)
	if _, err := rc.intake.settle(ctx, c, args); err != nil {
		args.Set = nil
	}
	return rc.intake.request(ctx, tn, c, wish{id: request.IDOf(tn.Key()), args: args.With(fresh), replyTo: r.Message})
}
