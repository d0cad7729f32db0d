package main

import (
	"encoding/base64"
	"html/template"
	"net/http"
	"os"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// shown is a message on the page.
type shown struct {
	fakebot.Message
	Photo   template.URL // its picture, "" for none
	Answers string       // the beginning of what it answers
	Rows    [][]fakebot.Button
	Presses []press
}

// writePage writes the chat as a page, as a messenger would show it, to a file. Messages
// that the bot has removed are pale.
func writePage(file string, f *fakebot.Fake, p *fakebot.Person, presses []press) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	texts := map[int]string{}
	toasts := toastsOf(f)
	var list []shown
	for _, m := range p.All() {
		one := shown{Message: m, Answers: texts[m.ReplyTo]}
		if data := f.Photo(m); data != nil {
			one.Photo = template.URL("data:" + http.DetectContentType(data) + ";base64," + base64.StdEncoding.EncodeToString(data)) //nolint:gosec // the bot's own picture
		}
		for _, b := range m.Buttons {
			one.Rows = append(one.Rows, make([][]fakebot.Button, b.Row+1-len(one.Rows))...)
			one.Rows[b.Row] = append(one.Rows[b.Row], b)
		}
		for _, p := range presses {
			if p.message == m.ID {
				p.Toast = toasts[p.id]
				one.Presses = append(one.Presses, p)
			}
		}
		texts[m.ID] = clip(m)
		list = append(list, one)
	}
	if err := page.Execute(out, struct {
		Language string
		List     []shown
	}{p.Language, list}); err != nil {
		return err
	}
	return out.Close()
}

// clip is how an answer names the message that it answers.
func clip(m fakebot.Message) string {
	if words := []rune(m.Text); len(words) > 40 {
		return string(words[:40]) + "…"
	}
	if m.Text == "" {
		return m.Kind
	}
	return m.Text
}

var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="{{.Language}}"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>A chat with the bot</title>
<style>
body { background: #d6e4d0; font: 15px/1.35 sans-serif; margin: 0 auto; max-width: 460px; padding: 12px }
div { background: #fff; border-radius: 12px; margin: 6px 60px 6px 0; overflow-wrap: anywhere; padding: 8px 10px; white-space: pre-line }
.me { background: #e3fdd1; margin: 6px 0 6px 60px } .gone { opacity: .45 }
img { border-radius: 8px; display: block; margin-bottom: 6px; max-height: 320px; max-width: 100% }
q { border-left: 3px solid #5a9; color: #366; display: block; font-size: 13px; margin-bottom: 4px; padding-left: 6px; quotes: none }
p { display: flex; gap: 4px; margin: 4px 0 0 } p span { background: #def; border-radius: 8px; flex: 1; padding: 4px 9px; text-align: center }
small { color: #666; display: block; margin-top: 6px } small b { background: #555; border-radius: 8px; color: #fff; font-weight: normal; padding: 2px 8px }
</style>
{{range .List}}<div class="{{if not .FromBot}}me{{end}}{{if .Deleted}} gone{{end}}">
{{- with .Answers}}<q>{{.}}</q>{{end}}
{{- with .Invoice}}<b>{{.Title}}</b>
{{.Description}}<p><span>Pay ⭐ {{.Stars}}</span></p>
{{- else}}{{if .Photo}}<img alt="" src="{{.Photo}}">{{else if ne .Kind "text"}}[{{.Kind}}{{with .File.Name}} {{.}}{{end}}] {{end}}
{{- .Text}}{{end}}
{{- range .Rows}}<p>{{range .}}<span>{{.Label}}</span>{{end}}</p>{{end}}
{{- range .Presses}}<small>👆 {{.Label}}{{with .Toast}} <b>{{.}}</b>{{end}}</small>{{end}}</div>
{{end}}</html>
`))
