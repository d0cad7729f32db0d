package conversation

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// The menu of a picture is one message that says how it was made, with the buttons that are
// needed less often. Their questions replace it in the same message.

// mayRead reports whether a user may see the words of a request: in a group everybody may,
// in a private chat only its author.
func mayRead(tn *turn, rec request.Record) bool {
	return rec.Chat.Group || rec.User.ID == tn.User.ID
}

// pictureMenu says how a picture was made, above the buttons that are needed less often.
type pictureMenu struct {
	hub      *hubapi.Client
	runner   *request.Runner
	texts    *locale.Bundle
	logger   *slog.Logger
	commands *repertoire
	find     *finder
}

// plain returns the menu of a picture, with a text above the buttons.
func (pm *pictureMenu) plain(tn *turn, rec request.Record, text string) platform.Post {
	post := platform.Post{Text: text, ReplyTo: tn.under, Private: true, Press: tn.Press}
	row := func(verbs ...string) {
		post.Buttons = append(post.Buttons, tn.buttons(rec.ID, verbs...)...)
	}
	if rec.Outcome != request.Done || len(rec.Outputs) == 0 {
		row(request.VerbWorkflow, request.VerbDelete)
		return post
	}
	about := func(verb string) platform.Button {
		number := "0"
		if len(rec.Outputs) == 1 {
			number = "1"
		}
		return platform.Button{Label: tn.say("button_"+verb, nil), Data: request.ButtonData(verb+number, rec.ID)}
	}
	post.Buttons = append(post.Buttons, []platform.Button{about(request.VerbStar)})
	if pm.commands.varies(rec) {
		post.Buttons = append(post.Buttons, []platform.Button{about(request.VerbSubtle), about(request.VerbStrong)})
	}
	if c := pm.commands.byName[rec.Command]; c != nil {
		var verbs []string
		if c.Takes(workflow.Prompt) {
			verbs = append(verbs, request.VerbRemix)
		}
		if len(c.Styles()) > 0 {
			verbs = append(verbs, request.VerbStyles)
		}
		if len(verbs) > 0 {
			row(verbs...)
		}
	}
	row(request.VerbWorkflow, request.VerbDelete)
	if sharable(tn, rec) {
		post.Buttons = append(post.Buttons, []platform.Button{{Label: tn.say("button_share", nil), Share: sharePrefix + rec.ID}})
	}
	return post
}

// about returns the menu with how the picture was made, and links to the files.
func (pm *pictureMenu) about(ctx context.Context, tn *turn, rec request.Record) platform.Post {
	post := pm.plain(tn, rec, pm.text(ctx, tn, rec))
	post.Buttons = withLinks(post.Buttons, pm.originals(ctx, tn, rec))
	return post
}

// numbers returns the buttons for choosing a picture, five in a row.
func (pm *pictureMenu) numbers(rec request.Record, verb string) (rows [][]platform.Button) {
	const inRow, most = 5, 20
	for i := range rec.Outputs[:min(most, len(rec.Outputs))] {
		if i%inRow == 0 {
			rows = append(rows, nil)
		}
		number := fmt.Sprint(i + 1)
		rows[len(rows)-1] = append(rows[len(rows)-1], platform.Button{Label: number, Data: request.ButtonData(verb+number, rec.ID)})
	}
	return rows
}

// turn replaces the message of the menu whose button was pressed.
func (pm *pictureMenu) turn(ctx context.Context, tn *turn, post platform.Post) error {
	return tn.edit(ctx, tn.under, post)
}

// post posts something about a picture that is to be removed together with it.
func (pm *pictureMenu) post(ctx context.Context, tn *turn, rec request.Record, post platform.Post) error {
	ids, err := tn.send(ctx, post)
	if err != nil {
		return err
	}
	return pm.runner.NoteCopies(ctx, rec.ID, ids...)
}

// replied returns the request of the picture that a message replies to. If there is
// none, it tells the user what to do.
func (pm *pictureMenu) replied(ctx context.Context, tn *turn, command string) (rec request.Record, ok bool, err error) {
	id, err := pm.find.replied(ctx, tn)
	if err != nil {
		return rec, false, err
	}
	if id != "" {
		rec, err = pm.find.requestOf(ctx, tn, id)
		if mayPass(err) {
			return rec, false, err
		}
		ok = err == nil && mayRead(tn, rec)
	}
	if !ok {
		return rec, false, tn.reply(ctx, tn.say("answer_picture", locale.With{"command": command}))
	}
	tn.under = tn.Message.ID
	return rec, true, nil
}

// text says how a picture was made.
func (pm *pictureMenu) text(ctx context.Context, tn *turn, rec request.Record) string {
	lines := []string{"/" + rec.Command}
	if len(rec.Args.Styles) > 0 {
		lines[0] += " --style " + strings.Join(rec.Args.Styles, ",")
	}
	add := func(key, name, value string) {
		if value != "" {
			lines = append(lines, tn.say(key, locale.With{name: value}))
		}
	}
	if words := rec.Words(); words != "" {
		lines = append(lines, platform.Clip(words, infoWords))
	}
	add("info_no", "words", platform.Clip(rec.Args.Negative, infoWords/2))
	if len(rec.Inputs) > 0 {
		lines = append(lines, tn.say("info_from", nil))
	}
	if c := pm.commands.byName[rec.Command]; c != nil {
		add("info_model", "model", c.Value(workflow.Model, rec.Args))
		var facts []string
		if c.Takes(workflow.Seed) {
			facts = append(facts, tn.say("caption_seed", locale.With{"seed": rec.Args.Seed}))
		}
		if size := c.Value(workflow.Size, rec.Args); size != "" {
			facts = append(facts, size)
		}
		if steps := c.Value(workflow.Steps, rec.Args); steps != "" {
			facts = append(facts, tn.say("info_steps", locale.With{"steps": steps}))
		}
		if strength := c.Value(workflow.Strength, rec.Args); strength != "" {
			facts = append(facts, "--strength "+strength)
		}
		for _, name := range slices.Sorted(maps.Keys(rec.Args.Set)) {
			facts = append(facts, fmt.Sprintf("--%s %s", name, platform.Clip(rec.Args.Set[name], 60)))
		}
		if len(facts) > 0 {
			lines = append(lines, strings.Join(facts, " · "))
		}
	}
	if rec.Took > 0 {
		with := locale.With{"time": request.Duration(pm.texts, tn.language, time.Duration(rec.Took)*time.Millisecond), "gpu": pm.gpu(ctx, rec)}
		key := "info_took"
		if with["gpu"] != "" {
			key = "info_took_on"
		}
		lines = append(lines, tn.say(key, with))
	}
	return strings.Join(append(lines, rec.Asked.UTC().Format("2006-01-02 15:04 UTC")), "\n")
}

// gpu returns the GPU that made a picture, "" if the hub does not say.
func (pm *pictureMenu) gpu(ctx context.Context, rec request.Record) string {
	if rec.Instance == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	gpu, err := pm.hub.GPU(ctx, rec.Instance)
	if err != nil {
		return ""
	}
	return platform.Clip(gpuName(gpu), 60)
}

// originals returns links to a request's original files; nil if there are none.
func (pm *pictureMenu) originals(ctx context.Context, tn *turn, rec request.Record) (row []platform.Button) {
	if rec.Outcome != request.Done || tn.p.Limits().Linked || len(rec.Outputs) > maxLinks {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	for i := range rec.Outputs {
		link, err := pm.runner.Link(ctx, rec, i)
		if err != nil {
			pm.logger.Debug("the hub gives no link to a file", "request", rec.ID, "error", err)
			return row
		}
		if link == "" {
			continue
		}
		label := tn.say("button_original", nil)
		if len(rec.Outputs) > 1 {
			label += " " + strconv.Itoa(i+1)
		}
		row = append(row, platform.Button{Label: label, URL: link})
	}
	return row
}
