package locale

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/language"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// value is a name in braces, alone or with the forms of a word.
var value = regexp.MustCompile(`\{(\w+)[:}]`)

// Check compares the languages in a folder with the built-in ones. Problems are
// mistakes; notes tell which texts are missing, and said in English.
func Check(folder string) (problems, notes []string) {
	own, err := Load("")
	if err != nil {
		return []string{err.Error()}, nil
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return []string{err.Error()}, nil
	}
	for _, file := range files {
		name := filepath.Base(file)
		add := func(format string, args ...any) {
			problems = append(problems, name+": "+fmt.Sprintf(format, args...))
		}
		code := strings.TrimSuffix(name, ".yaml")
		if _, err := language.Parse(code); err != nil {
			add("the name is not a language code such as de or pt-BR")
		}
		data, err := os.ReadFile(file)
		if err != nil {
			add("%v", err)
			continue
		}
		var texts map[string]string
		if err := yaml.Unmarshal(data, &texts); err != nil {
			add("%v", err)
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(texts)) {
			if _, ok := own.texts[Default][key]; !ok {
				add("there is no text with the key %q", key)
				continue
			}
			if most := lengthOf(key); platform.Units(texts[key]) > most {
				add("%s: %d characters; Telegram takes %d there", key, platform.Units(texts[key]), most)
			}
			want, got := valuesOf(own.texts[Default][key]), valuesOf(texts[key])
			if !slices.Equal(want, got) {
				add("%s: the values must be %v, not %v", key, want, got)
			}
		}
		missing := slices.DeleteFunc(own.Keys(Default), func(key string) bool { _, ok := texts[key]; return ok })
		if len(missing) > 0 && own.texts[code] == nil {
			notes = append(notes, fmt.Sprintf("%s: %d texts are missing; English is used for them: %s", name, len(missing), strings.Join(missing, ", ")))
		}
	}
	return problems, notes
}

// What Telegram takes: in a message, in the answer to a button, and on a button, which
// shows no more on a phone.
const (
	maxMessage = 4096
	maxAnswer  = 200
	maxButton  = 64
)

// lengthOf returns how long the text of a key may be, in UTF-16 units.
func lengthOf(key string) int {
	switch {
	case strings.HasPrefix(key, "button_"):
		return maxButton
	case slices.Contains([]string{"too_old", "not_yours", "it_is_over", "on_it", "cancelling", "saved", "cancelled", "terms_accepted", "terms_changed"}, key):
		return maxAnswer
	case strings.HasPrefix(key, "menu_"):
		return 256
	}
	return maxMessage
}

// valuesOf returns the names of the values in a text, sorted, each once.
func valuesOf(text string) []string {
	var names []string
	for _, m := range value.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}
