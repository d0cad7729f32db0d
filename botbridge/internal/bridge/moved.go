package bridge

import (
	"context"
	"time"
)

// movedTimeout bounds how long a chat waits for the new id of another to be stored.
const movedTimeout = 5 * time.Second

// moved handles a chat's new id that came up in the answer to a call.
func (b *Bridge) moved(platformName, from, to string) {
	ctx, cancel := context.WithTimeout(context.Background(), movedTimeout)
	defer cancel()
	if err := b.talk.Moved(ctx, platformName, from, to); err != nil {
		b.log.Warn("cannot store that a chat has a new id: the next call says it again", "platform", platformName, "error", err)
	}
}
