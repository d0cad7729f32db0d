package discord

import (
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// marks are what Discord interprets in a text. A backslash takes their meaning away.
const marks = "\\*_~`|>#-[]()<:"

// plain makes a text that Discord shows as it is, shortened to what it takes. It is
// never empty, which Discord would refuse without a file.
func plain(text string) string {
	var b strings.Builder
	length := 0
	links := linksIn(text)
	for i, r := range text {
		piece := string(r)
		if strings.ContainsRune(marks, r) && !links.hold(i) && meant(text, i, r) {
			piece = `\` + piece
		}
		n := platform.Units(piece)
		if length+n > maxText-1 {
			return b.String() + "…"
		}
		length += n
		b.WriteString(piece)
	}
	return b.String()
}

// meant reports whether a mark would be interpreted where it is: some are only at the
// begin of a line.
func meant(text string, at int, r rune) bool {
	switch r {
	case '>', '#', '-':
		before := text[:at]
		line := before[strings.LastIndexByte(before, '\n')+1:]
		return strings.Trim(line, " >#-") == ""
	case ':', '(', ')':
		return false
	}
	return true
}

// spans are parts of a text, as pairs of offsets.
type spans [][2]int

func (s spans) hold(at int) bool {
	for _, span := range s {
		if at >= span[0] && at < span[1] {
			return true
		}
	}
	return false
}

// linksIn finds addresses, in which a backslash would be part of the address.
func linksIn(text string) (found spans) {
	for _, scheme := range []string{"https://", "http://"} {
		for from := 0; ; {
			at := strings.Index(text[from:], scheme)
			if at < 0 {
				break
			}
			begin := from + at
			end := begin + strings.IndexAny(text[begin:]+" ", " \n\t")
			found = append(found, [2]int{begin, end})
			from = end
		}
	}
	return found
}
