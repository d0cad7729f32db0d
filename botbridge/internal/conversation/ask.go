package conversation

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// toldTimeout is how long the next message of a chat waits for the first reply to this one.
const toldTimeout = 30 * time.Second

// asker turns commands into requests, with the pictures that came with them.
type asker struct {
	store     *state.Store
	albumWait time.Duration
	commands  *repertoire
	find      *finder
	consent   *consent
	intake    *intake
	questions *questions
	rewording *rewording
}

// ask turns a command into a request.
func (as *asker) ask(ctx context.Context, tn *turn, c *workflow.Command) error {
	if off, err := tn.off(ctx, c); off || err != nil {
		return err
	}
	as.rewording.cutFlag(tn, c)
	args, err := c.Parse(tn.rest)
	if err != nil {
		return tn.complain(ctx, err)
	}
	files := filesWith(tn)
	if len(roles(c)) > 1 {
		if files, err = as.album(ctx, tn); err != nil {
			return err
		}
	}
	if err := as.find.findShown(ctx, tn); err != nil {
		return err
	}
	given, rest := tn.given, tn.rest
	if len(tn.shown) > 0 && c.Takes(workflow.Image) {
		// The hub's originals are used, not the platform's copies or the numbered sheet.
		files = nil
		one, words := choose(tn.shown, args.Prompt, c.Images())
		args.Prompt = words
		_, rest = choose(tn.shown, rest, c.Images())
		if count(given, workflow.Image) >= c.Images() && c.Takes(workflow.Mask) && len(one) > 0 {
			one = []request.Input{{Role: workflow.Mask, From: one[0].From, Owner: one[0].Owner}}
		}
		given = append(slices.Clone(given), one...)
	}
	if len(tn.Message.Files) > 0 && slices.ContainsFunc(tn.Message.Files, heic) && c.Takes(workflow.Image) {
		return tn.reply(ctx, tn.say("useless_heic", nil))
	}
	inputs, left := inputsOf(files, c, given)
	if needs := lacks(c, args, inputs, tn.shown); needs != "" {
		if _, err := as.intake.settle(ctx, c, args); err != nil {
			return tn.complain(ctx, err)
		}
		return as.questions.put(ctx, tn, c, question{Rest: rest, Inputs: inputs, Choices: tn.shown, Needs: needs})
	}
	if err := as.consent.agreed(ctx, tn); err != nil {
		return err
	}
	if args.Width == 0 && tn.settings.Width > 0 && c.Takes(workflow.Size) {
		args.Width, args.Height = tn.settings.Width, tn.settings.Height
	}
	args.AsFile = args.AsFile || tn.settings.AsFile
	if c.Takes(workflow.Mask) && left > 0 {
		if err := tn.reply(ctx, tn.say("album_rest", nil)); err != nil {
			return err
		}
	}
	w := wish{id: request.IDOf(tn.Key()), args: args, inputs: inputs}
	if task := as.rewording.task(tn, c, args); task != "" {
		err = as.rewording.offer(ctx, tn, c, w, task)
	} else {
		err = as.intake.request(ctx, tn, c, w)
	}
	if err != nil {
		return err
	}
	return as.questions.drop(ctx, tn)
}

// wish describes a new request.
type wish struct {
	id      string
	args    workflow.Args
	inputs  []request.Input
	replyTo string // default: the message of the turn
	shows   string // the words of the picture that this one is made from
	said    string // digest of the message that asked for it; default: the turn's
}

// awaitTold waits until the user has been told for the first time, but not for ever.
func awaitTold(ctx context.Context, told <-chan struct{}) {
	timeout := time.NewTimer(toldTimeout)
	defer timeout.Stop()
	select {
	case <-told:
	case <-timeout.C:
	case <-ctx.Done():
	}
}

// driving returns the context that requests run under: it outlives the turn and ends with
// the bridge.
func driving(ctx context.Context) context.Context {
	if bridge, ok := ctx.Value(bridgeKey{}).(context.Context); ok {
		return bridge
	}
	return ctx
}

type bridgeKey struct{}

// WithBridge adds the bridge's context to that of a turn, so that the requests it starts
// end with the bridge.
func WithBridge(ctx, bridge context.Context) context.Context {
	return context.WithValue(ctx, bridgeKey{}, bridge)
}

// messageName returns the name under which a message in the chat of a turn is stored.
func messageName(tn *turn, message string) string {
	return request.MessageName(tn.Platform, tn.Chat.ID, message)
}

// filesWith returns the files of a message, or else of the one that it replies to.
func filesWith(tn *turn) []platform.File {
	if len(tn.Message.Files) == 0 && tn.Message.ReplyTo != nil {
		return tn.Message.ReplyTo.Files
	}
	return tn.Message.Files
}

// heic reports whether a file is a picture in the form in which iPhones keep them, which no
// ComfyUI opens.
func heic(f platform.File) bool {
	ending := strings.ToLower(path.Ext(f.Name))
	return strings.HasPrefix(f.Type, "image/hei") || ending == ".heic" || ending == ".heif"
}

// useless returns the key of what is said about files of which nothing can be made, "" if
// one can be used or there is none.
func useless(files []platform.File) string {
	switch {
	case len(files) == 0 || slices.ContainsFunc(files, usable):
		return ""
	case files[0].Type == platform.Voice:
		return "useless_voice"
	case files[0].Type == platform.Sticker:
		return "useless_sticker"
	case heic(files[0]):
		return "useless_heic"
	}
	return "useless_file"
}

// usable reports whether a file may be an input: a picture, video or sound, or of unknown
// type.
func usable(f platform.File) bool {
	if heic(f) {
		return false
	}
	for _, kind := range []string{"image/", "video/", "audio/"} {
		if strings.HasPrefix(f.Type, kind) {
			return true
		}
	}
	return f.Type == ""
}
