// Package locale holds the bridge's texts, by language. A language is a YAML file
// of texts by key; {name} in a text stands for a value, and {name:chat|chats} for the
// word that goes with a number. Texts that a language lacks
// are in English.
package locale

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/language"
)

//go:embed *.yaml
var builtIn embed.FS

// Default is the language of users whose own is unknown.
const Default = "en"

// With are the values of a text.
type With = map[string]any

// Bundle is all languages. It is immutable.
type Bundle struct {
	texts map[string]map[string]string
	// names are the languages with an IETF tag, and tags these tags, in the same
	// order.
	names []string
	tags  []language.Tag
}

// Load reads the built-in languages, and those of a folder, which add to them or
// replace single texts; "" for no folder.
func Load(folder string) (*Bundle, error) {
	b := &Bundle{texts: map[string]map[string]string{}}
	if err := b.read(builtIn); err != nil {
		return nil, err
	}
	if folder != "" {
		if err := b.read(os.DirFS(folder)); err != nil {
			return nil, fmt.Errorf("languages in %s: %w", folder, err)
		}
	}
	for _, name := range b.Languages() {
		if tag, err := language.Parse(name); err == nil {
			b.names, b.tags = append(b.names, name), append(b.tags, tag)
		}
	}
	return b, nil
}

func (b *Bundle) read(files fs.FS) error {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return err
	}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		var texts map[string]string
		if err := yaml.Unmarshal(data, &texts); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		code := strings.TrimSuffix(path.Base(name), ".yaml")
		if b.texts[code] == nil {
			b.texts[code] = map[string]string{}
		}
		maps.Copy(b.texts[code], texts)
	}
	return nil
}

// Languages are the tags of all languages, sorted.
func (b *Bundle) Languages() []string { return slices.Sorted(maps.Keys(b.texts)) }

// Match is the language for an IETF tag such as "ru-RU".
func (b *Bundle) Match(tag string) string {
	if b.texts[tag] != nil {
		return tag
	}
	wanted, err := language.Parse(tag)
	if err != nil || len(b.tags) == 0 {
		return Default
	}
	_, n, confidence := language.NewMatcher(b.tags).Match(wanted)
	// Less than High is the same language in another script, or another language
	// that many of its speakers can read. The latter is not what was asked for.
	found, _ := b.tags[n].Base()
	if base, _ := wanted.Base(); confidence < language.High && base != found {
		return Default
	}
	return b.names[n]
}

// Say returns a text in a language. An unknown key is returned as it is: better an
// odd word than silence.
func (b *Bundle) Say(language, key string, with With) string {
	text, ok := b.texts[language][key]
	if !ok {
		if text, ok = b.texts[Default][key]; !ok {
			return key
		}
	}
	if len(with) == 0 {
		return text
	}
	pairs := make([]string, 0, 2*len(with))
	for _, m := range choice.FindAllStringSubmatch(text, -1) {
		if n, ok := with[m[1]]; ok {
			pairs = append(pairs, m[0], choose(language, n, strings.Split(m[2], "|")))
		}
	}
	for name, value := range with {
		pairs = append(pairs, "{"+name+"}", sayValue(value))
	}
	// One pass: a value that holds "{name}" is not replaced again.
	return strings.NewReplacer(pairs...).Replace(text)
}

// Keys are the keys of a language, sorted.
func (b *Bundle) Keys(language string) []string { return slices.Sorted(maps.Keys(b.texts[language])) }

func sayValue(value any) string {
	if list, ok := value.([]string); ok {
		return strings.Join(list, ", ")
	}
	return fmt.Sprint(value)
}
