package workflow

import (
	"path"
	"strings"
	"unicode"
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
		if d := distance(want, got); d < least || d == least && best == "" {
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

// distance counts the letters to add, remove, replace or swap with their neighbours.
func distance(a, b []rune) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
