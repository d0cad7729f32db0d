package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// StyleSpec is a style as bot.yaml describes it: what the operator adds to the words of a
// message.
type StyleSpec struct {
	// About is one line by language, for /styles.
	About About `yaml:"about"`
	// Prompt is what the words become; {prompt} stands for them. Default: they stay.
	Prompt string `yaml:"prompt"`
	// Negative is added to what should not be there, by commands that take that.
	Negative string `yaml:"negative"`
	// Arguments are values by the names of their flags. What a message says itself counts
	// more.
	Arguments map[string]string `yaml:"arguments"`
	// Commands are those that have the style. Default: all that take what it sets.
	Commands []string `yaml:"commands"`
}

// Style is a style by its name.
type Style struct {
	Name string
	Spec StyleSpec

	args Args // of the command that has it
}

const (
	// maxStyles is how many styles a message may name.
	maxStyles = 3
	// maxStyleWords bounds the words of a style, in characters.
	maxStyleWords = 1000
	// styleWords is where the words of the message go.
	styleWords = "{prompt}"
)

// Problems returns what is wrong with a style, whatever the commands take.
func (s StyleSpec) Problems() (list []string) {
	if s.Prompt == "" && s.Negative == "" && len(s.Arguments) == 0 {
		list = append(list, "it changes nothing: set prompt, negative or arguments")
	}
	if s.Prompt != "" && strings.Count(s.Prompt, styleWords) != 1 {
		list = append(list, "prompt: it needs "+styleWords+" once, where the words of the message go")
	}
	if utf8.RuneCountInString(s.Prompt) > maxStyleWords || utf8.RuneCountInString(s.Negative) > maxStyleWords {
		list = append(list, fmt.Sprintf("at most %d characters are possible", maxStyleWords))
	}
	return list
}

// WithStyles returns a command that has those styles that fit it, and why the others do
// not, by their names.
func (c *Command) WithStyles(styles []Style) (*Command, map[string]error) {
	styled, misfits := *c, map[string]error{}
	styled.styles = nil
	for _, s := range styles {
		var err error
		if s.args, err = c.fit(s.Spec); err != nil {
			misfits[s.Name] = err
			continue
		}
		styled.styles = append(styled.styles, s)
	}
	return &styled, misfits
}

// styles are those of a command.
type styles []Style

// Styles returns the styles of the command, in the order of bot.yaml.
func (s styles) Styles() []Style { return s }

// Having returns those of some styles that the command has.
func (s styles) Having(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return s.style(name) == nil })
}

func (s styles) style(name string) *Style {
	for i := range s {
		if s[i].Name == name {
			return &s[i]
		}
	}
	return nil
}

// fit returns the arguments of a style for the command, or why it does not fit.
func (c *Command) fit(s StyleSpec) (a Args, err error) {
	_, taken := c.argument("style")
	switch {
	case len(s.Commands) > 0 && !slices.Contains(s.Commands, c.Name):
		return a, errors.New("the style does not name it")
	case taken:
		return a, errors.New("it has an argument --style of its own")
	case s.Prompt != "" && !c.Takes(Prompt):
		return a, errors.New("it takes no words")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Arguments)) {
		value := s.Arguments[name]
		if !slices.Contains(ownFlags(), name) {
			argument, ok := c.argument(name)
			if !ok {
				return a, fmt.Errorf("it takes no --%s", name)
			}
			if argument.Switch() {
				on, ok := parseSwitch(value)
				if !ok {
					return a, fmt.Errorf("--%s is on or off", name)
				}
				value = strconv.FormatBool(on)
			}
			a.own(argument.Name, value)
			continue
		}
		if !slices.Contains([]string{"ar", "size", "steps", "model", "strength"}, name) {
			return a, fmt.Errorf("a style cannot set --%s", name)
		}
		var one Args
		if err := one.set(name, value); err != nil {
			return a, fmt.Errorf("--%s cannot be %s", name, value)
		}
		if _, err := c.Settle(one); err != nil {
			return a, fmt.Errorf("it takes no --%s %s", name, value)
		}
		if err := a.set(name, value); err != nil {
			return a, err
		}
	}
	return a, nil
}

// settleStyles returns the names of the styles that a message means.
func (c *Command) settleStyles(names []string) ([]string, error) {
	if len(names) > maxStyles {
		return nil, complain("style_many", "max", maxStyles)
	}
	var all, settled []string
	for _, s := range c.styles {
		all = append(all, s.Name)
	}
	for _, name := range names {
		at := slices.IndexFunc(all, func(one string) bool { return bare(one) == bare(name) })
		if at < 0 {
			if near := Nearest(name, all); near != "" {
				return nil, complain("style_near", "style", clip(name), "near", near)
			}
			return nil, complain("style_unknown", "style", clip(name), "styles", clipLong(strings.Join(all, ", ")), "command", c.Name)
		}
		if !slices.Contains(settled, all[at]) {
			settled = append(settled, all[at])
		}
	}
	return settled, nil
}

// styled returns settled args with what their styles add. The record of a request has them
// without it, so that another style, or none, may follow.
func (c *Command) styled(a Args) Args {
	for _, name := range a.Styles {
		s := c.style(name)
		if s == nil {
			continue // bot.yaml has changed meanwhile
		}
		if s.Spec.Prompt != "" {
			words := strings.Replace(s.Spec.Prompt, styleWords, a.Prompt, 1)
			if a.Prompt == "" {
				words = strings.Trim(words, " ,;:.")
			}
			a.Prompt = words
		}
		if s.Spec.Negative != "" && c.Takes(Negative) {
			a.Negative = strings.TrimPrefix(a.Negative+", "+s.Spec.Negative, ", ")
		}
		a = s.args.With(a)
	}
	if a.AspectW > 0 {
		a.Width, a.Height = c.shape(a)
		a.AspectW, a.AspectH = 0, 0
	}
	if a.Width > 0 {
		a.Width, a.Height = grid(a.Width), grid(a.Height)
	}
	return a
}

// With returns the args with everything that others set in its place.
func (a Args) With(b Args) Args {
	if b.AspectW == 0 && b.Width == 0 {
		b.AspectW, b.AspectH, b.Width, b.Height = a.AspectW, a.AspectH, a.Width, a.Height
	} else if b.Width == 0 {
		b.Width, b.Height = a.Width, a.Height // its number of pixels stays
	}
	if !b.SeedGiven && b.Seed == 0 {
		b.Seed, b.SeedGiven = a.Seed, a.SeedGiven
	}
	for _, text := range [][2]*string{{&b.Prompt, &a.Prompt}, {&b.Negative, &a.Negative}, {&b.Model, &a.Model}} {
		if *text[0] == "" {
			*text[0] = *text[1]
		}
	}
	for _, number := range [][2]*int{{&b.Steps, &a.Steps}, {&b.Count, &a.Count}} {
		if *number[0] == 0 {
			*number[0] = *number[1]
		}
	}
	b.Strength = cmp.Or(b.Strength, a.Strength)
	if b.Styles == nil {
		b.Styles = a.Styles
	}
	b.AsFile, b.Spoiler = b.AsFile || a.AsFile, b.Spoiler || a.Spoiler
	if len(a.Set) > 0 {
		set := maps.Clone(a.Set)
		maps.Copy(set, b.Set)
		b.Set = set
	}
	return b
}

// styleProblems compares the values of the styles with the fleet.
func (c *Command) styleProblems(catalog *Catalog) (problems []string) {
	for _, s := range c.styles {
		for _, name := range slices.Sorted(maps.Keys(s.args.Set)) {
			value := s.args.Set[name]
			adjusted, err := c.Adjust(Args{Set: map[string]string{name: value}}, catalog)
			switch {
			case err != nil:
				problems = append(problems, fmt.Sprintf("style %s: no instance takes %q for --%s", s.Name, value, name))
			case adjusted.Set[name] != value && !sameNumber(adjusted.Set[name], value):
				problems = append(problems, fmt.Sprintf("style %s: --%s: write %q instead of %q", s.Name, name, adjusted.Set[name], value))
			}
		}
	}
	return problems
}

func sameNumber(a, b string) bool {
	n, ok := parseNumber(a)
	m, same := parseNumber(b)
	return ok && same && n == m
}
