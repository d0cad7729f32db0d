package conversation

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// An album arrives as several messages in any order, of which one has the words. Nothing
// says how many there are.
const (
	// albumWait is how long a command waits for the second picture of its album.
	albumWait = 10 * time.Second
	// albumQuiet is how long an album has to go without another picture to count as
	// complete.
	albumQuiet = time.Second
	// albumLook is the polling interval.
	albumLook = 50 * time.Millisecond
)

// NotePart remembers a picture of an album as soon as its message is stored, because the
// command that needs it is handled before the later messages of the album. In groups the
// bot sees only the message with the command. The author must be allowed to use the bot.
func NotePart(ctx context.Context, store *state.Store, e platform.Event) error {
	if !isPart(e) {
		return nil
	}
	return store.Inbox.NotePart(ctx, Lane(e), e.Message.Album, e.Message.ID, e.Message.Files[0])
}

// isPart reports whether an event is an album's picture that NotePart remembers.
func isPart(e platform.Event) bool {
	return e.Kind == platform.Said && !e.Chat.Group && e.Message.Album != "" && len(e.Message.Files) > 0
}

// album returns the pictures of a message's album in order, or the message's own if it is
// not part of an album.
func (as *asker) album(ctx context.Context, tn *turn) ([]platform.File, error) {
	m, wait := tn.Message, as.albumWait
	if len(m.Files) == 0 && m.ReplyTo != nil {
		m, wait = *m.ReplyTo, 0
	}
	if m.Album == "" || tn.Chat.Group {
		return m.Files, nil
	}
	begin, quiet, seen := time.Now(), time.Now(), 0
	for {
		parts, err := as.store.Inbox.Parts(ctx, Lane(tn.Event), m.Album)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		if len(parts) > seen {
			quiet, seen = now, len(parts)
		}
		complete := seen > 1 && now.Sub(quiet) >= min(albumQuiet, wait)
		if complete || now.Sub(begin) >= wait {
			return filesOf(parts, m), nil
		}
		if !retry.Sleep(ctx, albumLook) {
			return nil, ctx.Err()
		}
	}
}

// filesOf returns the pictures in the order of their messages, with that of m.
func filesOf(parts map[string]json.RawMessage, m platform.Message) (files []platform.File) {
	if parts[m.ID] == nil && len(m.Files) > 0 {
		if doc, err := json.Marshal(m.Files[0]); err == nil {
			parts[m.ID] = doc
		}
	}
	// Ids are increasing numbers.
	order := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
	for _, message := range slices.SortedFunc(maps.Keys(parts), order) {
		var f platform.File
		if json.Unmarshal(parts[message], &f) == nil {
			files = append(files, f)
		}
	}
	return files
}
