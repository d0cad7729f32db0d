package request

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// wording is what the bridge says about a request, and the buttons below.
type wording struct {
	texts    *locale.Bundle
	command  func(name string) *workflow.Command
	moderate Judge
	upscale  string
	vary     string
	rec      *Record
	prog     *progress
	away     *absence
}

// say returns a text in the language of the request.
func (w *wording) say(key string, with locale.With) string {
	return w.texts.Say(w.rec.Language, key, with)
}

// duration formats a time for people.
func (w *wording) duration(d time.Duration) string { return Duration(w.texts, w.rec.Language, d) }

// Duration formats a time for people.
func Duration(texts *locale.Bundle, language string, d time.Duration) string {
	seconds := int(math.Ceil(d.Seconds()))
	if seconds < 90 {
		return texts.Say(language, "seconds", locale.With{"n": seconds})
	}
	return texts.Say(language, "minutes", locale.With{"n": int(math.Round(d.Minutes()))})
}

// PlaceText says that a request waits at a place in the queue, from 0, and how long that takes
// unless left is 0.
func PlaceText(texts *locale.Bundle, language string, position int, left time.Duration) string {
	key, with := "waiting", locale.With{"place": position + 1}
	if position == 0 {
		key = "waiting_first"
	}
	if left > 0 {
		key, with["time"] = key+"_eta", Duration(texts, language, left)
	}
	return texts.Say(language, key, with)
}

// statusPost returns the current status message.
func (w *wording) statusPost() platform.Post {
	post := platform.Post{ReplyTo: w.rec.Message, Buttons: w.buttons(VerbStatus, VerbCancel)}
	p := w.prog
	switch {
	case w.rec.Phase == Ended || w.rec.Phase == Over:
		return w.endPost()
	case w.rec.Cancel:
		post.Text, post.Buttons = w.say("cancelling", nil), nil
	case w.away.tells:
		post.Text = w.say("hub_away", nil)
	case w.away.known && !p.started && p.position < 0:
		post.Text = w.say("kept", nil)
	case p.started:
		post.Text = w.runningText()
		if w.rec.Previews && p.preview != nil && w.moderate == nil {
			post.Files = []platform.Attachment{w.previewOf(p.preview)}
		}
	case p.position >= 0:
		post.Text = PlaceText(w.texts, w.rec.Language, p.position, p.eta())
		if p.stuck != "" {
			post.Text = platform.Clip(p.stuck, 600)
		}
	default:
		post.Text = w.say("accepted", nil)
		if p.eta() > 0 {
			post.Text = w.say("accepted_eta", locale.With{"time": w.duration(p.eta())})
		}
	}
	return post
}

func (w *wording) runningText() string {
	p := w.prog
	percent := p.percent()
	text := fmt.Sprintf("%s %d%%", bar(percent), percent)
	var parts []string
	if c := w.command(w.rec.Command); c != nil && p.node != "" {
		parts = append(parts, w.say("stage_"+string(c.Stage(p.node)), nil))
	}
	if left := p.left(); left > 0 {
		parts = append(parts, w.say("left", locale.With{"time": w.duration(left)}))
	}
	if len(parts) > 0 {
		text += "\n" + strings.Join(parts, " · ")
	}
	return w.say("running", locale.With{"progress": text})
}

// caption returns the text below a picture.
func (w *wording) caption(limit int) string {
	tail := slices.Clone(w.rec.Args.Styles)
	if c := w.command(w.rec.Command); c != nil && c.Takes(workflow.Seed) {
		tail = append(tail, w.say("caption_seed", locale.With{"seed": w.rec.Args.Seed}))
	}
	if w.rec.Took > 0 {
		tail = append(tail, w.duration(time.Duration(w.rec.Took)*time.Millisecond))
	}
	end := strings.Join(tail, " · ")
	prompt := platform.Clip(w.rec.Words(), limit-platform.Units(end)-2)
	return strings.TrimSpace(prompt + "\n" + end)
}

// endPost returns the final message of a request, without the picture itself.
func (w *wording) endPost() platform.Post {
	post := platform.Post{ReplyTo: w.rec.Message}
	switch w.rec.Outcome {
	case Cancelled:
		post.Text = w.say("cancelled", nil)
		post.Buttons = w.buttons(VerbAgain)
	case Refused:
		post.Text = w.say("refused", locale.With{"reason": platform.Clip(w.rec.Reason, 800)})
	case Failed:
		post.Text = w.say("failed", locale.With{"reason": w.fault(w.rec.Reason)})
		post.Buttons = w.buttons(VerbAgain)
	default:
		post = w.donePost()
	}
	if w.rec.Charge != "" && !w.rec.earned() {
		post.Text += "\n" + w.say("pay_back", locale.With{"n": w.rec.Paid})
	}
	return post
}

// whyRefused says why the hub did not accept a request, in its own words if it gave any.
func (w *wording) whyRefused(refused *hubapi.RefusedError) string {
	key := "refused_status"
	switch {
	case refused.Message != "":
		return refused.Message + " " + refused.Details
	case refused.Status == http.StatusRequestEntityTooLarge:
		key = "refused_size"
	}
	return w.say(key, locale.With{"status": refused.Status})
}

// donePost returns the message that says what became of the files.
func (w *wording) donePost() platform.Post {
	post := platform.Post{ReplyTo: w.rec.Message, Buttons: w.doneButtons()}
	count := map[Sent]int{}
	var lines []string
	for _, out := range w.rec.Outputs {
		count[out.State]++
		if out.State == TooBig {
			if out.Link != "" {
				lines = append(lines, w.say("too_big_link", locale.With{"size": megabytes(out.Size), "link": out.Link}))
			} else {
				lines = append(lines, w.say("too_big", locale.With{"size": megabytes(out.Size)}))
			}
		}
	}
	if len(w.rec.Outputs) == 0 && len(w.rec.Texts) == 0 {
		lines = append(lines, w.say("no_output", nil))
	}
	if w.rec.textLost() {
		lines = append(lines, w.say("lost", nil))
	}
	if count[Arrived] > 0 {
		lines = append(lines, w.say("done", locale.With{
			"n": count[Arrived], "time": w.duration(time.Duration(w.rec.Took) * time.Millisecond), "seed": w.rec.Args.Seed,
		}))
	}
	if count[Unsure] > 0 {
		lines = append(lines, w.say("unsure", nil))
		post.Buttons = append(w.buttons(VerbResend), post.Buttons...)
	}
	if count[Lost] > 0 {
		key := "lost"
		if w.rec.Barred {
			key = "barred_late"
		}
		lines = append(lines, w.say(key, nil))
		post.Buttons = append(w.buttons(VerbAgain), nil)[:1]
	}
	if line := w.keptLine(); line != "" {
		lines = append(lines, line)
	}
	if w.rec.allKept() {
		post.Buttons = w.buttons(VerbAgain)
	}
	post.Text = strings.Join(lines, "\n")
	return post
}

// buttons returns one row of buttons.
func (w *wording) buttons(verbs ...string) [][]platform.Button {
	return Buttons(w.texts, w.rec.Language, w.rec.ID, verbs...)
}

// Buttons returns one row of buttons for a request.
func Buttons(texts *locale.Bundle, language, id string, verbs ...string) [][]platform.Button {
	row := make([]platform.Button, 0, len(verbs))
	for _, verb := range verbs {
		row = append(row, platform.Button{Label: texts.Say(language, "button_"+verb, nil), Data: ButtonData(verb, id)})
	}
	return [][]platform.Button{row}
}

// doneButtons returns the buttons under a picture.
func (w *wording) doneButtons() [][]platform.Button {
	verbs := []string{VerbAgain}
	if c := w.command(w.rec.Command); c != nil && c.Takes(workflow.Seed) {
		verbs = append(verbs, VerbVary)
	}
	rows := append(w.pictureButtons(), w.buttons(verbs...)...)
	var more []string
	pictures, files := false, false
	for _, out := range w.rec.Outputs {
		pictures = pictures || isPicture(out.Ref.Filename)
		files = files || out.Media != platform.Document
	}
	if pictures && w.upscale != "" && w.rec.Command != w.upscale {
		more = append(more, VerbUpscale)
	}
	if files {
		more = append(more, VerbFile)
	}
	return append(rows, w.buttons(append(more, VerbMore)...)...)
}

// pictureButtons returns two rows for two to four pictures: one to enlarge them, one for
// variations.
func (w *wording) pictureButtons() [][]platform.Button {
	n := len(w.rec.Outputs)
	c := w.command(w.rec.Command)
	if n < 2 || n > maxSheet || c == nil {
		return nil
	}
	verbs := []string{VerbPick}
	if w.vary != "" || c.Takes(workflow.Seed) {
		verbs = append(verbs, VerbVaryOne)
	}
	var rows [][]platform.Button
	for _, verb := range verbs {
		var row []platform.Button
		for i, out := range w.rec.Outputs {
			if !isPicture(out.Ref.Filename) {
				return nil
			}
			number := fmt.Sprint(i + 1)
			row = append(row, platform.Button{Label: strings.ToUpper(verb) + number, Data: ButtonData(verb+number, w.rec.ID)})
		}
		rows = append(rows, row)
	}
	return rows
}

func megabytes(size int64) int64 { return (size + 999_999) / 1_000_000 }
