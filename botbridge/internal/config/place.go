package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// place finds the lines of a file that problems are about.
type place struct {
	path string
	root *yaml.Node // nil if the file is no YAML
}

// atLine is a problem whose line is known.
var atLine = regexp.MustCompile(`^((?:command|style) \S+: )?(?:yaml: )?line (\d+): (.*)$`)

// Placed returns problems as lines with the file and, where they are about a word in it, its
// line. Each is there once.
func (c *Config) Placed(problems []error) []string { return c.place.all(problems) }

func (p place) all(problems []error) (lines []string) {
	for _, problem := range problems {
		if problem == nil {
			continue
		}
		for text := range strings.SplitSeq(problem.Error(), "\n") {
			if line := p.of(text); !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

func (p place) of(text string) string {
	if m := atLine.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%s:%s: %s%s", p.path, m[2], m[1], m[3])
	}
	if strings.HasPrefix(text, p.path) {
		return text
	}
	at, line := p.root, 0
	for part := range strings.SplitSeq(text, ": ") {
		words := []string{part}
		if noun, name, ok := strings.Cut(part, " "); ok && (noun == "command" || noun == "style") {
			words = []string{noun + "s", name}
		}
		found := false
		for _, word := range words {
			if at, found = below(at, word, &line); !found {
				break
			}
		}
		if !found {
			break
		}
	}
	if line == 0 {
		return p.path + ": " + text
	}
	return fmt.Sprintf("%s:%d: %s", p.path, line, text)
}

// below returns the value of a word in a map, and notes the word's line.
func below(at *yaml.Node, word string, line *int) (*yaml.Node, bool) {
	if at == nil || at.Kind != yaml.MappingNode {
		return nil, false
	}
	for i := 0; i+1 < len(at.Content); i += 2 {
		if at.Content[i].Value == word {
			*line = at.Content[i].Line
			return at.Content[i+1], true
		}
	}
	return nil, false
}

// noOption says that there is no option of a name where it was found, and what was meant:
// one of those that are possible there, or one that belongs elsewhere.
func noOption(word string, possible []string) string {
	text := fmt.Sprintf("there is no option %q", word)
	for _, section := range []struct {
		name string
		of   any
	}{{"a command", workflow.Spec{}}, {"telegram", Telegram{}}, {"discord", Discord{}}, {"enhance", Enhance{}}, {"transcribe", Transcribe{}}} {
		if slices.Contains(optionsOf(section.of), word) {
			return text + " here; it belongs to " + section.name + ": is the indentation right?"
		}
	}
	if near := workflow.Nearest(word, possible); near != "" {
		text += "; did you mean " + near + "?"
	}
	return text
}

// optionsOf returns the words of a section.
func optionsOf(section any) (words []string) {
	for field := range reflect.TypeOf(section).Fields() {
		if field.Anonymous {
			words = append(words, optionsOf(reflect.Zero(field.Type).Interface())...)
		}
		if word, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); word != "" && word != "-" {
			words = append(words, word)
		}
	}
	return words
}

// syntax says what is wrong with a text that is no YAML at all.
func syntax(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line, what, ok := strings.Cut(text, ": ")
	switch {
	case !ok || !strings.HasPrefix(line, "line "):
		return errors.New(text)
	case strings.Contains(what, "cannot start any token"), strings.Contains(what, "tab character"):
		return fmt.Errorf("%s: indent with spaces, not with tabs", line)
	case strings.Contains(what, "did not find expected"), strings.Contains(what, "mapping values"), strings.Contains(what, "could not find expected"):
		return fmt.Errorf("%s: this is not valid YAML: check the indentation, and put text with a colon in quotes", line)
	}
	return err
}
