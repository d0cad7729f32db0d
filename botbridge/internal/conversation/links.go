package conversation

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strconv"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
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

// originals returns links to a request's original files; nil if there are none.
func (pm *pictureMenu) originals(ctx context.Context, tn *turn, rec request.Record) (row []platform.Button) {
	if rec.Outcome != request.Done || tn.p.Limits().Linked || len(rec.Outputs) > maxLinks {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	for i := range rec.Outputs {
		link, err := pm.runner.Link(ctx, rec, i)
		if err != nil {
			pm.logger.Debug("the hub gives no link to a file", "request", rec.ID, "error", err)
			return row
		}
		if link == "" {
			continue
		}
		label := tn.say("button_original", nil)
		if len(rec.Outputs) > 1 {
			label += " " + strconv.Itoa(i+1)
		}
		row = append(row, platform.Button{Label: label, URL: link})
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
