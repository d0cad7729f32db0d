package platform

import (
	"strings"
	"unicode/utf16"
)

// Units returns the length of a text in UTF-16 units, as Telegram counts.
func Units(text string) int {
	n := 0
	for _, r := range text {
		n += max(1, utf16.RuneLen(r))
	}
	return n
}

// Clip shortens a text to at most so many UTF-16 units.
func Clip(text string, most int) string {
	if Units(text) <= most {
		return text
	}
	n := 0
	for i, r := range text {
		if n += max(1, utf16.RuneLen(r)); n > most-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// Split divides a text into parts of at most so many UTF-16 units, between lines where
// it can. 0 means no bound.
func Split(text string, most int) (parts []string) {
	if most <= 0 || Units(text) <= most {
		return []string{text}
	}
	var part strings.Builder
	size := 0
	end := func() {
		if whole := strings.Trim(part.String(), "\n"); whole != "" {
			parts = append(parts, whole)
		}
		part.Reset()
		size = 0
	}
	for line := range strings.SplitAfterSeq(text, "\n") {
		if size+Units(line) > most {
			end()
		}
		for _, r := range line {
			n := max(1, utf16.RuneLen(r))
			if size+n > most {
				end()
			}
			part.WriteRune(r)
			size += n
		}
	}
	end()
	return parts
}
