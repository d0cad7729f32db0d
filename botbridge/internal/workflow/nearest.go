package workflow

import (
	"path"
	"strings"
	"unicode"

	"github.com/comfyhub/comfyhub/internal/nearest"
)

// Nearest returns the word of a list that somebody probably meant, "" if none is like it.
func Nearest(wrong string, words []string) string {
	const longest = 64
	want := []rune(bare(wrong))
	if len(want) == 0 || len(want) > longest {
		return ""
	}
	best, least := "", len(want)/3+1
	for _, word := range words {
		got := []rune(bare(word))
		if len(got) > longest {
			continue
		}
		if d := nearest.Distance(want, got); d < least || d == least && best == "" {
			best, least = word, d
		}
	}
	if best != "" || len(want) < 3 {
		return best
	}
	for _, word := range words {
		if strings.Contains(bare(word), string(want)) {
			return word
		}
	}
	return ""
}

// Fitting returns the words that contain what somebody has typed so far, those that begin
// with it first, or else the one that is most like it. Case and signs do not matter.
func Fitting(typed string, words []string) []string {
	want := bare(typed)
	if want == "" {
		return words
	}
	var begin, contain []string
	for _, word := range words {
		switch have := bare(word); {
		case strings.HasPrefix(have, want):
			begin = append(begin, word)
		case strings.Contains(have, want):
			contain = append(contain, word)
		}
	}
	if near := Nearest(typed, words); len(begin)+len(contain) == 0 && near != "" {
		return []string{near}
	}
	return append(begin, contain...)
}

// bare is a word without case, signs and the ending of a file.
func bare(word string) string {
	if ext := path.Ext(word); len(ext) > 3 {
		word = strings.TrimSuffix(word, ext)
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '+' {
			return unicode.ToLower(r)
		}
		return -1
	}, word)
}
