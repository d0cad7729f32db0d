package request

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// say returns a text in the language of the request.
func (j *job) say(key string, with locale.With) string {
	return j.r.o.Texts.Say(j.rec.Language, key, with)
}

// duration formats a time for people.
func (j *job) duration(d time.Duration) string { return Duration(j.r.o.Texts, j.rec.Language, d) }

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
func (j *job) statusPost() platform.Post {
	post := platform.Post{ReplyTo: j.rec.Message, Buttons: j.buttons(VerbStatus, VerbCancel)}
	p := j.prog
	switch {
	case j.rec.Phase == Ended || j.rec.Phase == Over:
		return j.endPost()
	case j.rec.Cancel:
		post.Text, post.Buttons = j.say("cancelling", nil), nil
	case j.away.tells:
		post.Text = j.say("hub_away", nil)
	case j.away.known && !p.started && p.position < 0:
		post.Text = j.say("kept", nil)
	case p.started:
		post.Text = j.runningText()
		if j.rec.Previews && p.preview != nil && j.r.o.Judge == nil {
			post.Files = []platform.Attachment{j.previewOf(p.preview)}
		}
	case p.position >= 0:
		post.Text = PlaceText(j.r.o.Texts, j.rec.Language, p.position, p.eta())
		if p.stuck != "" {
			post.Text = clipTo(p.stuck, 600)
		}
	default:
		post.Text = j.say("accepted", nil)
		if p.eta() > 0 {
			post.Text = j.say("accepted_eta", locale.With{"time": j.duration(p.eta())})
		}
	}
	return post
}

func (j *job) runningText() string {
	p := j.prog
	percent := p.percent()
	text := fmt.Sprintf("%s %d %%", bar(percent), percent)
	var parts []string
	if c := j.r.o.Command(j.rec.Command); c != nil && p.node != "" {
		stage := j.say("stage_"+string(c.Stage(p.node)), nil)
		if p.max > 1 {
			stage += fmt.Sprintf(" %.0f/%.0f", p.value, p.max)
		}
		parts = append(parts, stage)
	}
	if left := p.eta(); left > 0 {
		parts = append(parts, j.say("left", locale.With{"time": j.duration(left)}))
	}
	if len(parts) > 0 {
		text += "\n" + strings.Join(parts, " · ")
	}
	return j.say("running", locale.With{"progress": text})
}

// caption returns the text below a picture.
func (j *job) caption(limit int) string {
	tail := slices.Clone(j.rec.Args.Styles)
	if c := j.r.o.Command(j.rec.Command); c != nil && c.Takes(workflow.Seed) {
		tail = append(tail, j.say("caption_seed", locale.With{"seed": j.rec.Args.Seed}))
	}
	if j.rec.Took > 0 {
		tail = append(tail, j.duration(time.Duration(j.rec.Took)*time.Millisecond))
	}
	end := strings.Join(tail, " · ")
	prompt := clipTo(j.rec.Words(), limit-units(end)-2)
	return strings.TrimSpace(prompt + "\n" + end)
}

// endPost returns the final message of a request, without the picture itself.
func (j *job) endPost() platform.Post {
	post := platform.Post{ReplyTo: j.rec.Message}
	switch j.rec.Outcome {
	case Cancelled:
		post.Text = j.say("cancelled", nil)
		post.Buttons = j.buttons(VerbAgain)
	case Refused:
		post.Text = j.say("refused", locale.With{"reason": clipTo(j.rec.Reason, 800)})
	case Failed:
		post.Text = j.say("failed", locale.With{"reason": clipTo(j.rec.Reason, 800)})
		post.Buttons = j.buttons(VerbAgain)
	default:
		post = j.donePost()
	}
	if j.rec.Charge != "" && !j.rec.earned() {
		post.Text += "\n" + j.say("pay_back", locale.With{"n": j.rec.Paid})
	}
	return post
}

// whyRefused says why the hub did not accept a request, in its own words if it gave any.
func (j *job) whyRefused(refused *hubapi.RefusedError) string {
	key := "refused_status"
	switch {
	case refused.Status == http.StatusUnauthorized, refused.Message == "" && refused.Status == http.StatusForbidden:
		key = "refused_key"
	case refused.Message != "":
		return refused.Message + " " + refused.Details
	case refused.Status == http.StatusRequestEntityTooLarge:
		key = "refused_size"
	}
	return j.say(key, locale.With{"status": refused.Status})
}

// donePost returns the message that says what became of the files.
func (j *job) donePost() platform.Post {
	post := platform.Post{ReplyTo: j.rec.Message, Buttons: j.doneButtons()}
	count := map[Sent]int{}
	var lines []string
	for _, out := range j.rec.Outputs {
		count[out.State]++
		if out.State == TooBig {
			if out.Link != "" {
				lines = append(lines, j.say("too_big_link", locale.With{"size": megabytes(out.Size), "link": out.Link}))
			} else {
				lines = append(lines, j.say("too_big", locale.With{"size": megabytes(out.Size)}))
			}
		}
	}
	if len(j.rec.Outputs) == 0 && len(j.rec.Texts) == 0 {
		lines = append(lines, j.say("no_output", nil))
	}
	if j.textLost() {
		lines = append(lines, j.say("lost", nil))
	}
	if count[Arrived] > 0 {
		lines = append(lines, j.say("done", locale.With{
			"n": count[Arrived], "time": j.duration(time.Duration(j.rec.Took) * time.Millisecond), "seed": j.rec.Args.Seed,
		}))
	}
	if count[Unsure] > 0 {
		lines = append(lines, j.say("unsure", nil))
		post.Buttons = append(j.buttons(VerbResend), post.Buttons...)
	}
	if count[Lost] > 0 {
		lines = append(lines, j.say("lost", nil))
		post.Buttons = append(j.buttons(VerbAgain), nil)[:1]
	}
	if line := j.keptLine(); line != "" {
		lines = append(lines, line)
	}
	if j.allKept() {
		post.Buttons = j.buttons(VerbAgain)
	}
	post.Text = strings.Join(lines, "\n")
	return post
}

// buttons returns one row of buttons.
func (j *job) buttons(verbs ...string) [][]platform.Button {
	return Buttons(j.r.o.Texts, j.rec.Language, j.rec.ID, verbs...)
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
func (j *job) doneButtons() [][]platform.Button {
	verbs := []string{VerbAgain}
	if c := j.r.o.Command(j.rec.Command); c != nil && c.Takes(workflow.Seed) {
		verbs = append(verbs, VerbVary)
	}
	rows := append(j.pictureButtons(), j.buttons(verbs...)...)
	var more []string
	pictures, files := false, false
	for _, out := range j.rec.Outputs {
		pictures = pictures || isPicture(out.Ref.Filename)
		files = files || out.Media != platform.Document
	}
	if pictures && j.r.o.Upscale != "" && j.rec.Command != j.r.o.Upscale {
		more = append(more, VerbUpscale)
	}
	if files {
		more = append(more, VerbFile)
	}
	return append(rows, j.buttons(append(more, VerbMore)...)...)
}

// pictureButtons returns two rows for two to four pictures: one to enlarge them, one for
// variations.
func (j *job) pictureButtons() [][]platform.Button {
	n := len(j.rec.Outputs)
	c := j.r.o.Command(j.rec.Command)
	if n < 2 || n > maxSheet || c == nil {
		return nil
	}
	verbs := []string{VerbPick}
	if j.r.o.Vary != "" || c.Takes(workflow.Seed) {
		verbs = append(verbs, VerbVaryOne)
	}
	var rows [][]platform.Button
	for _, verb := range verbs {
		var row []platform.Button
		for i, out := range j.rec.Outputs {
			if !isPicture(out.Ref.Filename) {
				return nil
			}
			number := fmt.Sprint(i + 1)
			row = append(row, platform.Button{Label: strings.ToUpper(verb) + number, Data: ButtonData(verb+number, j.rec.ID)})
		}
		rows = append(rows, row)
	}
	return rows
}

func megabytes(size int64) int64 { return (size + 999_999) / 1_000_000 }

// units returns the length of a text in UTF-16 units, as platforms count.
func units(text string) int { return len(utf16.Encode([]rune(text))) }

// clipTo shortens a text to a number of units.
func clipTo(text string, most int) string {
	if units(text) <= most {
		return text
	}
	n := 0
	for i, r := range text {
		if n += utf16.RuneLen(r); n > most-1 {
			return text[:i] + "…"
		}
	}
	return text
}
