package conversation

import (
	"net/url"
	"regexp"
	"slices"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// maxLinks bounds the link buttons for a text's addresses or a request's originals.
const maxLinks = 4

// address finds URLs in a text, without the punctuation that ends a sentence.
var address = regexp.MustCompile(`https?://[^\s<>"“”«»]*[^\s<>"“”«».,;:!?)'\]]`)

// linksOf returns buttons for the URLs in a text of the operator's, labelled by host; nil
// if there are none.
func linksOf(text string) (row []platform.Button) {
	for _, found := range address.FindAllString(text, -1) {
		u, err := url.Parse(found)
		twice := slices.ContainsFunc(row, func(b platform.Button) bool { return b.URL == found })
		if err == nil && u.Hostname() != "" && !twice && len(row) < maxLinks {
			row = append(row, platform.Button{Label: "🔗 " + u.Hostname(), URL: found})
		}
	}
	return row
}

// withLinks adds a row of links, if there are any.
func withLinks(rows [][]platform.Button, links []platform.Button) [][]platform.Button {
	if len(links) == 0 {
		return rows
	}
	return append(rows, links)
}
