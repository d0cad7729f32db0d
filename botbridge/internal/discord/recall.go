package discord

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

var _ platform.Recaller = (*Discord)(nil)

const (
	// pageOf is how many messages Discord lists at once, and maxPages how many times it is
	// asked for those before.
	pageOf   = 100
	maxPages = 10
	// clockSkew is how far Discord's clock may be from ours.
	clockSkew = time.Minute
)

// listed is what is read of a message in a channel.
type listed struct {
	ID        string    `json:"id"`
	Content   string    `json:"content"`
	Timestamp time.Time `json:"timestamp"`
	Author    struct {
		ID string `json:"id"`
	} `json:"author"`
	Attachments []struct{} `json:"attachments"`
	Reference   struct {
		MessageID string `json:"message_id"`
	} `json:"message_reference"`
}

// Recall implements platform.Recaller: it reads the channel, the newest messages first. Nothing
// says that Discord lists nonces, so it looks at what a message shows.
func (d *sender) Recall(ctx context.Context, in platform.Chat, p platform.Post, since time.Time, known platform.Known) ([]string, error) {
	if !isID(in.ID) {
		return nil, platform.ErrRefused
	}
	me, err := d.whoami(ctx)
	if err != nil {
		return nil, err
	}
	before := ""
	for range maxPages {
		var list []listed
		path := fmt.Sprintf("/channels/%s/messages?limit=%d%s", in.ID, pageOf, before)
		if err := d.rest.do(ctx, call{method: http.MethodGet, path: path, limit: "GET /channels/" + in.ID}, &list); err != nil {
			return nil, err
		}
		for _, m := range list {
			if m.Timestamp.Before(since.Add(-clockSkew)) {
				return nil, nil
			}
			if !m.shows(me, p) {
				continue
			}
			if other, err := known(ctx, m.ID); err != nil {
				return nil, err
			} else if !other {
				return ids(m.ID, p), nil
			}
		}
		if len(list) < pageOf {
			return nil, nil
		}
		before = "&before=" + list[len(list)-1].ID
	}
	return nil, fmt.Errorf("%w: too many messages came after it", platform.ErrRefused)
}

// shows reports whether a message looks like a post. A reply to a message that is gone is none.
func (m listed) shows(me identity, p platform.Post) bool {
	at := strings.TrimPrefix(p.ReplyTo, ofAnswer)
	return m.Author.ID == me.user && len(m.Attachments) == len(p.Files) &&
		strings.TrimSpace(m.Content) == strings.TrimSpace(plain(p.Text)) &&
		(m.Reference.MessageID == "" || m.Reference.MessageID == at)
}
