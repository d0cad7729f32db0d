package workflow

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Args is what one message sets. A zero field leaves the workflow unchanged.
type Args struct {
	Prompt   string  `json:"prompt,omitempty"`
	Negative string  `json:"negative,omitempty"`
	Seed     uint64  `json:"seed,omitempty,string"`
	Width    int     `json:"width,omitempty"`
	Height   int     `json:"height,omitempty"`
	Steps    int     `json:"steps,omitempty"`
	Count    int     `json:"count,omitempty"`
	Model    string  `json:"model,omitempty"`
	Strength float64 `json:"strength,omitempty"`
	// SeedGiven means that the user chose the seed.
	SeedGiven bool `json:"seed_given,omitempty"`
	// AspectW and AspectH are the requested aspect ratio, such as 16 and 9.
	AspectW int `json:"aspect_w,omitempty"`
	AspectH int `json:"aspect_h,omitempty"`
	// AsFile asks for files instead of pictures.
	AsFile bool `json:"as_file,omitempty"`
}

// Complaint is what is wrong with a message, for its author: the key of a text, and
// its values.
type Complaint struct {
	Key  string
	With map[string]any
}

func (c *Complaint) Error() string { return "complaint: " + c.Key }

func complain(key string, with ...any) error {
	c := &Complaint{Key: key, With: map[string]any{}}
	for i := 0; i+1 < len(with); i += 2 {
		c.With[fmt.Sprint(with[i])] = with[i+1]
	}
	return c
}

// bounds that hold whatever a command allows.
const (
	maxSide  = 8192
	maxText  = 8000
	maxRatio = 8
)

// ParseArgs parses what follows a command's name. Flags may appear anywhere; dashes
// that a phone has joined into a long one count as two.
func ParseArgs(text string) (Args, error) {
	var a Args
	if utf8.RuneCountInString(text) > maxText {
		return a, complain("too_long", "max", maxText)
	}
	words := strings.Fields(text)
	var prompt, negative []string
	into := &prompt
	for i := 0; i < len(words); i++ {
		flag, ok := flagOf(words[i])
		if !ok {
			*into = append(*into, words[i])
			continue
		}
		switch flag {
		case "no", "negative", "neg":
			into = &negative
			continue
		case "prompt":
			into = &prompt
			continue
		case "file":
			a.AsFile = true
			continue
		}
		into = &prompt
		name, value, joined := strings.Cut(flag, "=")
		if !joined {
			i++
			if i >= len(words) {
				return a, complain("flag_value", "flag", words[i-1])
			}
			value = words[i]
		}
		if err := a.set(name, value); err != nil {
			return a, err
		}
	}
	a.Prompt, a.Negative = strings.Join(prompt, " "), strings.Join(negative, " ")
	return a, nil
}

// flagOf parses a word as a flag.
func flagOf(word string) (string, bool) {
	for _, dashes := range []string{"--", "—", "–"} {
		if name, ok := strings.CutPrefix(word, dashes); ok && name != "" && name[0] >= 'a' && name[0] <= 'z' {
			return name, true
		}
	}
	if word == "-n" {
		return "n", true
	}
	return "", false
}

func (a *Args) set(name, value string) (err error) {
	bad := complain("flag_bad", "flag", "--"+name, "value", clip(value))
	switch name {
	case "ar":
		if a.AspectW, a.AspectH, err = pair(value, ":x/"); err != nil {
			return bad
		}
		if a.AspectW > maxRatio*a.AspectH || a.AspectH > maxRatio*a.AspectW {
			return complain("too_narrow", "max", maxRatio)
		}
	case "size":
		if a.Width, a.Height, err = pair(value, "x×*х"); err != nil {
			return bad
		}
	case "n", "count":
		a.Count, err = positive(value)
	case "steps":
		a.Steps, err = positive(value)
	case "seed":
		a.Seed, err = strconv.ParseUint(value, 10, 64)
		a.SeedGiven = true
	case "model":
		a.Model = value
	case "strength":
		a.Strength, err = strconv.ParseFloat(strings.ReplaceAll(value, ",", "."), 64)
		if err == nil && !(a.Strength > 0 && a.Strength <= 1) {
			return bad
		}
	default:
		return complain("flag_unknown", "flag", clip("--"+name))
	}
	if err != nil {
		return bad
	}
	return nil
}

func positive(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err == nil && (n < 1 || n > 1_000_000) {
		err = strconv.ErrRange
	}
	return n, err
}

// pair reads two positive numbers with one of the separators between.
func pair(text, separators string) (int, int, error) {
	at := strings.IndexAny(text, separators)
	if at < 0 {
		return 0, 0, strconv.ErrSyntax
	}
	after := strings.TrimLeft(text[at:], separators)
	first, err := positive(text[:at])
	if err != nil {
		return 0, 0, err
	}
	second, err := positive(after)
	return first, second, err
}

// clip shortens a user's text for quoting it.
func clip(text string) string {
	const most = 40
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
