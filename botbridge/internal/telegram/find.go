package telegram

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/go-telegram/bot"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

var _ platform.Finder = (*Telegram)(nil)

const (
	// supergroupsBelow is what the ids of supergroups are below.
	supergroupsBelow = -1_000_000_000_000
	// ahead is how many messages of others, of which the bot does not know, are expected
	// before a lost one.
	ahead = 2
	// maxCandidates bounds the messages that are looked at for one that was lost: there are
	// many only if the bridge was killed again and again meanwhile.
	maxCandidates = 1000
	// maxNumbers is how many messages are remembered.
	maxNumbers = 8192
)

// numbers are the ids that are known to be taken. A supergroup has numbers of its own; all
// other chats of a bot share theirs, so most numbers in a private chat belong to other chats.
type numbers struct {
	mu     sync.Mutex
	newest map[int64]int     // by group, 0 for all other chats
	taken  map[taken]string  // the name of the picture that the bot has sent there, "" for others
	order  [maxNumbers]taken // a ring
	next   int
}

type taken struct {
	group  int64
	number int
}

func newNumbers() *numbers { return &numbers{newest: map[int64]int{}, taken: map[taken]string{}} }

// groupOf returns the supergroup that a chat is, 0 if it is none.
func groupOf(chat int64) int64 {
	if chat < supergroupsBelow {
		return chat
	}
	return 0
}

func groupIn(in platform.Chat) int64 {
	id, _ := strconv.ParseInt(in.ID, 10, 64)
	return groupOf(id)
}

// note remembers messages.
func (n *numbers) note(group int64, messages ...int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.newest) >= maxNumbers {
		clear(n.newest)
	}
	for _, message := range messages {
		n.newest[group] = max(n.newest[group], message)
		delete(n.taken, n.order[n.next])
		n.order[n.next] = taken{group, message}
		n.taken[n.order[n.next]] = ""
		n.next = (n.next + 1) % maxNumbers
	}
}

// posted remembers a message of the bot, with Telegram's name of its picture, and returns its id.
func (n *numbers) posted(in platform.Chat, message int, file string) string {
	group := groupIn(in)
	n.note(group, message)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken[taken{group, message}] = file
	return strconv.Itoa(message)
}

// file returns Telegram's name of the picture that the bot sent in a message, "" if that is not
// remembered.
func (n *numbers) file(in platform.Chat, message string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.taken[taken{groupIn(in), number(message)}]
}

// Newest implements platform.Finder.
func (t *sender) Newest(in platform.Chat, p platform.Post, after string) string {
	t.numbers.mu.Lock()
	defer t.numbers.mu.Unlock()
	if newest := max(t.numbers.newest[groupIn(in)], number(p.ReplyTo), number(after)); newest > 0 && !p.Asks && p.Invoice == nil {
		return strconv.Itoa(newest)
	}
	return ""
}

// Candidates implements platform.Finder.
func (t *sender) Candidates(in platform.Chat, after, before string, parts int) (list []string, all bool) {
	t.numbers.mu.Lock()
	defer t.numbers.mu.Unlock()
	group := groupIn(in)
	end := number(before)
	if before == "" {
		end = max(t.numbers.newest[group], number(after)) + ahead + parts + 1
	}
	for message := number(after) + 1; message < end; message++ {
		if len(list) == maxCandidates {
			return list, false
		}
		if _, known := t.numbers.taken[taken{group, message}]; !known {
			list = append(list, strconv.Itoa(message))
		}
	}
	return list, true
}

// Is implements platform.Finder. The Bot API has no way to read a message. But it refuses to
// edit one that is not there, is not the bot's, or is of another kind, and a message that
// already says what it should is left as it is.
func (t *sender) Is(ctx context.Context, in platform.Chat, message string, p platform.Post, part int) (bool, error) {
	ctx, seen := observed(ctx)
	var err error
	switch {
	case len(p.Files) == 0 && p.Copy == nil:
		err = t.editText(ctx, in, message, p)
	case part == 0:
		err = t.editCaption(ctx, in, message, p)
	default: // the rest of an album
		_, err = t.bot.EditMessageCaption(ctx, &bot.EditMessageCaptionParams{ChatID: in.ID, MessageID: number(message)})
	}
	err = seen.explain(err)
	if errors.Is(err, platform.ErrGone) || errors.Is(err, platform.ErrRefused) {
		return false, nil
	}
	return err == nil, err
}
