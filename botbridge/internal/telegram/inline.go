package telegram

import (
	"context"
	"fmt"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

var _ platform.Inliner = (*Telegram)(nil)

// maxInlineLabel is how long the button above a query is at most. The Bot API states no bound.
const maxInlineLabel = 64

// queried converts what somebody types after the bot's name. Where they are, Telegram does not
// say; the chat is the one to which an offer leads.
func queried(e platform.Event, q *models.InlineQuery) (platform.Event, bool) {
	if q.From == nil {
		return e, false
	}
	e.Kind, e.User, e.Press, e.At = platform.Queried, user(q.From), q.ID, time.Now()
	e.Chat.ID, e.Message.Text = e.User.ID, q.Query
	return e, true
}

// Offer implements platform.Inliner. Telegram keeps an answer for no longer than it can, because
// the next one to the same words may be another: the library leaves out a time of 0, which
// would be five minutes.
func (t *Telegram) Offer(ctx context.Context, query string, o platform.Offer) error {
	answer := &bot.AnswerInlineQueryParams{InlineQueryID: query, Results: []models.InlineQueryResult{}, CacheTime: 1, IsPersonal: true}
	if o.Label != "" {
		answer.Button = &models.InlineQueryResultsButton{Text: platform.Clip(o.Label, maxInlineLabel), StartParameter: o.Start}
	}
	if o.Shown != nil {
		file := t.sender.numbers.file(platform.Chat{ID: o.Shown.Chat}, o.Shown.Message)
		if file == "" {
			return fmt.Errorf("%w: the picture was sent before this process began", platform.ErrGone)
		}
		answer.Results = append(answer.Results, &models.InlineQueryResultCachedPhoto{ID: o.Shown.Message, PhotoFileID: file})
	}
	ctx, seen := observed(ctx)
	_, err := t.bot.AnswerInlineQuery(ctx, answer)
	return seen.explain(err)
}

// photoOf returns Telegram's name of the picture of a message, "" if it has none.
func photoOf(m *models.Message) string {
	if n := len(m.Photo); n > 0 {
		return m.Photo[n-1].FileID
	}
	return ""
}
