package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/language"
)

// Terms is the section of that name: what everybody has to accept before their first
// request, by language.
type Terms struct {
	// Version is what people accept: another one is shown again. Default: a digest of the
	// texts.
	Version string
	// Texts are by language.
	Texts map[string]Text
}

// Text is a text, or a file that contains it.
type Text struct{ Text, File string }

// maxTerms bounds the text of one language, in bytes.
const maxTerms = 16 << 10

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *Terms) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: terms must be a map of languages, such as en: TEXT or en: {file: PATH}", node.Line)
	}
	t.Texts = map[string]Text{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		var text Text
		switch {
		case key.Value == "version" && value.Kind == yaml.ScalarNode:
			t.Version = value.Value
			continue
		case value.Kind == yaml.ScalarNode:
			text.Text = value.Value
		case value.Kind == yaml.MappingNode && len(value.Content) == 2 && value.Content[0].Value == "file":
			text.File = value.Content[1].Value
		default:
			return fmt.Errorf("line %d: %s: terms must be a text or {file: PATH}", value.Line, key.Value)
		}
		if _, err := language.Parse(key.Value); err != nil {
			return fmt.Errorf("line %d: %s: this is not a language code such as en or pt-BR", key.Line, key.Value)
		}
		t.Texts[key.Value] = text
	}
	return nil
}

// Read returns the texts by language, and the version.
func (t *Terms) Read(folder string) (texts map[string]string, version string, err error) {
	texts = map[string]string{}
	digest := sha256.New()
	for _, code := range slices.Sorted(maps.Keys(t.Texts)) {
		text := t.Texts[code]
		if text.File != "" {
			file, err := os.ReadFile(within(folder, text.File))
			if err != nil {
				return nil, "", fmt.Errorf("terms: %s: %w", code, err)
			}
			text.Text = string(file)
		}
		if texts[code] = strings.TrimSpace(text.Text); texts[code] == "" || len(texts[code]) > maxTerms {
			return nil, "", fmt.Errorf("terms: %s: the text has %d bytes; it must have 1 to %d", code, len(texts[code]), maxTerms)
		}
		fmt.Fprintf(digest, "%s\x00%s\x00", code, texts[code])
	}
	if texts["en"] == "" {
		return nil, "", fmt.Errorf("terms: en is missing; it is what people whose language is not listed read")
	}
	if t.Version != "" {
		return texts, t.Version, nil
	}
	return texts, hex.EncodeToString(digest.Sum(nil)[:8]), nil
}
