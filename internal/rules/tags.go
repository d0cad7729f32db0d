package rules

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/comfyhub/comfyhub/internal/job"
)

// tags are the words by which texts name models, as A1111 and some nodes read them.
var tags = regexp.MustCompile(`(?i)<(?:lora|lyco|locon|loha|lokr|hypernet|lora_block_weight):([^<>]+)`)

// embedded is how ComfyUI's texts name embeddings.
var embedded = regexp.MustCompile(`(?i)embedding:\s*([^\s,:()<>\[\]]+)`)

// namesFile reports whether a text is the name of a file of a model.
func namesFile(text string) bool { return job.NamesModel(strings.TrimSpace(text)) }

// tagged are the models that a text names by tags. A1111 takes the first part of a tag that is
// no assignment, such as "te=0.5".
func tagged(text string) []string {
	var names []string
	for _, tag := range tags.FindAllStringSubmatch(text, -1) {
		parts := strings.Split(tag[1], ":")
		names = append(names, strings.TrimSpace(parts[0]))
		if strings.Contains(parts[0], "=") {
			if at := slices.IndexFunc(parts, func(part string) bool { return !strings.Contains(part, "=") }); at > 0 {
				names = append(names, strings.TrimSpace(parts[at]))
			}
		}
	}
	for _, found := range embedded.FindAllStringSubmatch(text, -1) {
		names = append(names, found[1])
	}
	return names
}

// embeddingsIn are those of some embeddings whose names are in a prompt of A1111's, where a name
// needs no tag. Letters before a name do not hide it, because a tokenizer may split there.
func embeddingsIn(prompt string, all []string) []string {
	if len(all) == 0 {
		return nil
	}
	written := normal(strings.ReplaceAll(prompt, `\`, ""))
	read := normal(html.UnescapeString(html.UnescapeString(written))) // as the tokenizers of some models do
	var found []string
	for _, name := range all {
		if n := normal(name); n != "" && (hasWord(written, n) || hasWord(read, n)) {
			found = append(found, name)
		}
	}
	return found
}

// normal is a text as tokenizers take it.
func normal(text string) string { return strings.Join(strings.Fields(strings.ToLower(text)), " ") }

// hasWord reports whether a text has a word, or one that ends with it.
func hasWord(text, word string) bool {
	last, _ := utf8.DecodeLastRuneInString(word)
	for at := 0; ; {
		next := strings.Index(text[at:], word)
		if next < 0 {
			return false
		}
		at += next + len(word)
		if following, _ := utf8.DecodeRuneInString(text[at:]); !unicode.IsLetter(last) || !unicode.IsLetter(following) {
			return true
		}
	}
}
