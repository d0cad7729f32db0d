package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// Style is a style as written, with its line in the file.
type Style struct {
	Name string
	Line int
	workflow.StyleSpec
}

// Styles keep the order of the file.
type Styles []Style

const (
	// maxStyleName bounds the name of a style: a button has 64 bytes.
	maxStyleName = 20
	// maxStyles bounds how many there are.
	maxStyles = 100
	// maxAbout bounds what is said about one, in characters.
	maxAbout = 256
)

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *Styles) UnmarshalYAML(node *yaml.Node) error {
	return eachNamed(node, "style", func(name string, line int, spec workflow.StyleSpec) {
		*s = append(*s, Style{Name: name, Line: line, StyleSpec: spec})
	})
}

// styleProblems are those that need no workflow to be seen.
func (c *Config) styleProblems() (list []error) {
	if len(c.Styles) > maxStyles {
		list = append(list, fmt.Errorf("styles: there are %d; at most %d are possible", len(c.Styles), maxStyles))
	}
	for _, s := range c.Styles {
		add := func(format string, args ...any) {
			list = append(list, fmt.Errorf("line %d: style %s: "+format, append([]any{s.Line, s.Name}, args...)...))
		}
		if s.Name == "" || len(s.Name) > maxStyleName || strings.Trim(s.Name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			add("a name has only a-z, 0-9, _ and -, and at most %d characters", maxStyleName)
		}
		for _, problem := range s.StyleSpec.Problems() {
			add("%s", problem)
		}
		for language, text := range s.About {
			if utf8.RuneCountInString(text) > maxAbout {
				add("about: %s: more than %d characters", language, maxAbout)
			}
		}
		for _, name := range s.Commands {
			if !slices.ContainsFunc(c.Commands, func(k Command) bool { return k.Name == name }) {
				add("commands: there is no command %q", name)
			}
		}
	}
	return list
}

// style gives the styles to the commands that they fit. One that fits none is a mistake, and
// so is one that does not fit a command that it names.
func (c *Config) style(commands []*workflow.Command) ([]*workflow.Command, error) {
	if len(c.Styles) == 0 {
		return commands, nil
	}
	var styles []workflow.Style
	for _, s := range c.Styles {
		styles = append(styles, workflow.Style{Name: s.Name, Spec: s.StyleSpec})
	}
	why := map[string][]string{}
	for i, command := range commands {
		styled, misfits := command.WithStyles(styles)
		commands[i] = styled
		for name, misfit := range misfits {
			why[name] = append(why[name], fmt.Sprintf("/%s: %v", command.Name, misfit))
		}
	}
	var problems []error
	for _, s := range c.Styles {
		fits := func(command *workflow.Command) bool { return len(command.Having([]string{s.Name})) > 0 }
		wanted := func(command *workflow.Command) bool {
			return slices.Contains(s.Commands, command.Name) && !fits(command)
		}
		if len(commands) > 0 && (!slices.ContainsFunc(commands, fits) || slices.ContainsFunc(commands, wanted)) {
			problems = append(problems, fmt.Errorf("line %d: style %s does not fit. %s", s.Line, s.Name, strings.Join(why[s.Name], "; ")))
		}
	}
	return commands, errors.Join(problems...)
}
