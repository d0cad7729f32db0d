package workflow

import (
	"fmt"
	"maps"
	"slices"
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
	// Styles are the names of styles, which are not part of the words.
	Styles []string `json:"styles,omitempty"`
	// AsFile asks for files instead of pictures.
	AsFile bool `json:"as_file,omitempty"`
	// Spoiler covers the result until somebody wants to see it.
	Spoiler bool `json:"spoiler,omitempty"`
	// Set are the values of the command's own arguments, by their names.
	Set map[string]string `json:"set,omitempty"`
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

// TooLong returns the complaint about words that are longer than anybody's may be.
func TooLong(text string) error {
	if utf8.RuneCountInString(text) > maxText {
		return complain("too_long", "max", maxText)
	}
	return nil
}

// Parse parses what follows the command's name. Flags may appear anywhere; dashes that a
// phone has joined into a long one count as two.
func (c *Command) Parse(text string) (Args, error) {
	var a Args
	if err := TooLong(text); err != nil {
		return a, err
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
		case "spoiler":
			a.Spoiler = true
			continue
		}
		into = &prompt
		name, value, joined := strings.Cut(flag, "=")
		argument, known := Argument{}, false
		styles := name == "style" && len(c.styles) > 0
		if !styles && !slices.Contains(ownFlags(), name) {
			if argument, known = c.argument(name); !known {
				return a, c.unknown("--" + name)
			}
		}
		if !joined && known && argument.Switch() {
			a.own(argument.Name, switchText(true))
			if i+1 < len(words) {
				if _, ok := parseSwitch(words[i+1]); ok {
					i++
					a.own(argument.Name, words[i])
				}
			}
			continue
		}
		if !joined {
			i++
			if i >= len(words) {
				return a, complain("flag_value", "flag", words[i-1])
			}
			value = words[i]
		}
		value, i = quoted(value, words, i)
		if styles {
			a.Styles = append(a.Styles, strings.Split(value, ",")...)
			continue
		}
		if known {
			a.own(argument.Name, value)
			continue
		}
		if err := a.set(name, value); err != nil {
			return a, err
		}
	}
	a.Prompt, a.Negative = strings.Join(prompt, " "), strings.Join(negative, " ")
	if inside, ok := unquote(a.Negative); ok {
		a.Negative = inside
	}
	return a, nil
}

// own sets an argument of the command.
func (a *Args) own(name, value string) {
	if a.Set == nil {
		a.Set = map[string]string{}
	}
	a.Set[name] = value
}

// Words returns all texts of a message that the workflow gets, for moderation.
func (a Args) Words() string {
	words := []string{a.Prompt, a.Negative}
	for _, name := range slices.Sorted(maps.Keys(a.Set)) {
		words = append(words, a.Set[name])
	}
	return strings.Join(words, "\n")
}

// unknown is the complaint about a flag, with the one that was probably meant.
func (c *Command) unknown(flag string) error {
	var names []string
	for name, role := range map[string]Role{
		"ar": Size, "size": Size, "n": Count, "steps": Steps, "seed": Seed, "no": Negative, "model": Model, "strength": Strength,
	} {
		if c.Takes(role) {
			names = append(names, name)
		}
	}
	for _, a := range c.arguments.list {
		names = append(names, a.Name)
	}
	if len(c.styles) > 0 {
		names = append(names, "style")
	}
	names = append(names, "file", "spoiler")
	names = slices.DeleteFunc(names, func(name string) bool { return "--"+name == flag })
	slices.Sort(names)
	if near := Nearest(flag, names); near != "" {
		return complain("flag_near", "flag", clip(flag), "near", "--"+near, "command", c.Name)
	}
	return complain("flag_unknown", "flag", clip(flag), "flags", clipLong("--"+strings.Join(names, ", --")), "command", c.Name)
}

// quotes are pairs of marks around a value; phones make their own of plain ones.
var quotes = [][2]string{{`"`, `"`}, {"“", "”"}, {"„", "“"}, {"«", "»"}, {"'", "'"}, {"‘", "’"}, {"”", "”"}}

// maxQuoted bounds the words of a quoted value.
const maxQuoted = 32

// quoted returns a value, which goes on for several words if it begins with a quote,
// and the place of its last word. A quote that does not end belongs to the value.
func quoted(value string, words []string, at int) (string, int) {
	for _, q := range quotes {
		if !strings.HasPrefix(value, q[0]) {
			continue
		}
		if inside, ok := unquote(value); ok {
			return inside, at
		}
		for end := at + 1; end < min(len(words), at+maxQuoted); end++ {
			if strings.HasSuffix(words[end], q[1]) {
				whole := value + " " + strings.Join(words[at+1:end+1], " ")
				return whole[len(q[0]) : len(whole)-len(q[1])], end
			}
		}
	}
	return value, at
}

// unquote removes the quotes around a text; false if there are none.
func unquote(text string) (string, bool) {
	for _, q := range quotes {
		inside, begins := strings.CutPrefix(text, q[0])
		inside, ends := strings.CutSuffix(inside, q[1])
		if begins && ends && inside != "" {
			return inside, true
		}
	}
	return text, false
}

// flagOf parses a word as a flag.
func flagOf(word string) (string, bool) {
	for _, dashes := range []string{"--", "—", "–"} {
		if name, ok := strings.CutPrefix(word, dashes); ok && name != "" && name[0] >= 'a' && name[0] <= 'z' {
			return name, true
		}
	}
	if count, ok := strings.CutPrefix(word, "-n"); ok && strings.Trim(count, "=0123456789") == "" {
		if count = strings.TrimPrefix(count, "="); count == "" {
			return "n", true
		}
		return "n=" + count, true
	}
	return "", false
}

func (a *Args) set(name, value string) (err error) {
	bad := complain("flag_bad", "flag", "--"+name, "value", clip(value))
	switch name {
	case "ar":
		if a.AspectW, a.AspectH, err = pair(value, ":/"+times); err != nil {
			return bad
		}
		if a.AspectW > maxRatio*a.AspectH || a.AspectH > maxRatio*a.AspectW {
			return complain("too_narrow", "max", maxRatio)
		}
	case "size":
		if a.Width, a.Height, err = pair(value, times); err != nil {
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
	}
	if err != nil {
		return bad
	}
	return nil
}

// times are signs between two numbers; the last two are Cyrillic.
const times = "xX×*хХ"

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
	if err != nil {
		return 0, 0, err
	}
	return first, second, nil
}

// clip shortens a user's text for quoting it.
func clip(text string) string {
	const most = 40
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
