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

// An album comes as several messages, of which one has the words. Nothing says how many
// there are, and they may come in any order.
const (
	// albumWait is how long a command waits for the second picture of its album.
	albumWait = 10 * time.Second
	// albumQuiet is how long no further picture must come for an album to be complete.
	albumQuiet = time.Second
	// albumLook is the pause between two looks.
	albumLook = 50 * time.Millisecond
)

// NotePart remembers the picture of an album when its message is stored: the command that
// needs it is handled before the messages behind it. In groups a bot sees only the message
// with the command. The author must be welcome.
func NotePart(ctx context.Context, store *state.Store, e platform.Event) error {
	if !isPart(e) {
		return nil
	}
	return store.NotePart(ctx, Lane(e), e.Message.Album, e.Message.ID, e.Message.Files[0])
}

// isPart reports whether an event is a picture of an album that NotePart remembers.
func isPart(e platform.Event) bool {
	return e.Kind == platform.Said && !e.Chat.Group && e.Message.Album != "" && len(e.Message.Files) > 0
}

// album returns the pictures of the album that a message is of, in the order of the
// album; for a message without an album, its own.
func (t *Talk) album(ctx context.Context, tn *turn) ([]platform.File, error) {
	m, wait := tn.Message, t.o.AlbumWait
	if len(m.Files) == 0 && m.ReplyTo != nil {
		m, wait = *m.ReplyTo, 0
	}
	if m.Album == "" || tn.Chat.Group {
		return m.Files, nil
	}
	begin, quiet, seen := time.Now(), time.Now(), 0
	for {
		parts, err := t.o.Store.Parts(ctx, Lane(tn.Event), m.Album)
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

// filesOf returns the pictures in the order of their messages.
func filesOf(parts map[string]json.RawMessage, m platform.Message) (files []platform.File) {
	if parts[m.ID] == nil && len(m.Files) > 0 {
		if doc, err := json.Marshal(m.Files[0]); err == nil {
			parts[m.ID] = doc
		}
	}
	// Ids are numbers that grow.
	order := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
	for _, message := range slices.SortedFunc(maps.Keys(parts), order) {
		var f platform.File
		if json.Unmarshal(parts[message], &f) == nil {
			files = append(files, f)
		}
	}
	return files
}
