package conversation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// Settings are what a user has chosen.
type Settings struct {
	// Language is "" for that of the user's app.
	Language string `json:"language,omitempty"`
	// AsFile sends pictures as files.
	AsFile bool `json:"as_file,omitempty"`
	// Previews shows the latest preview of a run in the status message.
	Previews bool `json:"previews,omitempty"`
	// Width and Height are the default size, 0 for the workflow's own.
	Width  int `json:"width,omitempty"`
	Height int `json:"height,omitempty"`
	// Better always suggests better words, NoTranslate never English ones.
	Better      bool `json:"better,omitempty"`
	NoTranslate bool `json:"no_translate,omitempty"`
}

// verbSet is the verb of the buttons that change a setting.
const verbSet = "set"

// sizes are the choices for the default size.
var sizes = []string{"-", "512x512", "768x512", "512x768", "1024x1024"}

// settingsPanel shows users their settings and changes them.
type settingsPanel struct {
	store      *state.Store
	texts      *locale.Bundle
	enhance    *Enhance
	groupPanel *groupPanel
}

// show shows the available settings.
func (sp *settingsPanel) show(ctx context.Context, tn *turn) error {
	return tn.post(ctx, sp.post(tn))
}

func (sp *settingsPanel) post(tn *turn) platform.Post {
	post := platform.Post{Text: tn.say("settings", nil), ReplyTo: tn.Message.ID}
	mark := func(on bool, label string) string {
		if on {
			return "✓ " + label
		}
		return label
	}
	// A button names the user whose settings it changes, as in a group everybody can press
	// it.
	button := func(on bool, label, key, value string) platform.Button {
		return platform.Button{Label: mark(on, label), Data: fmt.Sprintf("%s:%s:%s:%s", verbSet, tn.User.ID, key, value)}
	}
	var row []platform.Button
	for _, language := range sp.texts.Languages() {
		row = append(row, button(tn.own == language, sp.texts.Say(language, "language", nil), "lang", language))
	}
	post.Buttons = append(post.Buttons, row)
	s := tn.settings
	post.Buttons = append(post.Buttons, []platform.Button{
		button(s.AsFile, tn.say("as_file", nil), "file", flip(s.AsFile)),
		button(s.Previews, tn.say("previews", nil), "preview", flip(s.Previews)),
	})
	if e := sp.enhance; e != nil {
		row = []platform.Button{button(s.Better, tn.say("better_words", nil), "better", flip(s.Better))}
		if e.Translate {
			row = append(row, button(!s.NoTranslate, tn.say("translate_words", nil), "translate", flip(!s.NoTranslate)))
		}
		post.Buttons = append(post.Buttons, row)
	}
	row = nil
	for _, size := range sizes {
		label := size
		if size == "-" {
			label = tn.say("usual_size", nil)
		}
		row = append(row, button(sizeOf(s) == size, label, "size", size))
	}
	post.Buttons = append(post.Buttons, row[:3], row[3:])
	if row = sp.groupPanel.button(tn); row != nil {
		post.Buttons = append(post.Buttons, row)
	}
	return post
}

func flip(on bool) string {
	if on {
		return "off"
	}
	return "on"
}

func sizeOf(s Settings) string {
	if s.Width == 0 {
		return "-"
	}
	return fmt.Sprintf("%dx%d", s.Width, s.Height)
}

// pressed changes a setting. A value that no button offers is forged.
func (sp *settingsPanel) pressed(ctx context.Context, tn *turn, data string) error {
	parts := strings.Split(data, ":")
	if len(parts) != 3 {
		tn.answer(ctx, "too_old")
		return nil
	}
	if parts[0] != tn.User.ID {
		tn.answer(ctx, "not_yours")
		return nil
	}
	s, value, ok := tn.settings, parts[2], true
	switch parts[1] {
	case "lang":
		if ok = slices.Contains(sp.texts.Languages(), value); ok {
			s.Language = value
		}
	case "file":
		s.AsFile = value == "on"
	case "preview":
		s.Previews = value == "on"
	case "better":
		s.Better = value == "on"
	case "translate":
		s.NoTranslate = value != "on"
	case "size":
		ok = slices.Contains(sizes, value)
		s.Width, s.Height = 0, 0
		if ok && value != "-" {
			_, err := fmt.Sscanf(value, "%dx%d", &s.Width, &s.Height)
			ok = err == nil
		}
	default:
		ok = false
	}
	if !ok {
		tn.answer(ctx, "too_old")
		return nil
	}
	if err := sp.store.Put(ctx, settingsKind, tn.who(), s, 0); err != nil {
		return err
	}
	tn.settings = s
	tn.speak()
	tn.answer(ctx, "saved")
	return tn.edit(ctx, tn.Message.ID, sp.post(tn))
}
