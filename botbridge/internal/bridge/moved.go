package bridge

import (
	"context"
	"time"
)

// movedTimeout bounds how long a chat waits until it is stored that another has a new id.
const movedTimeout = 5 * time.Second

// moved goes on in the chat that another has become, as the answer to a call has said.
func (b *Bridge) moved(platformName, from, to string) {
	ctx, cancel := context.WithTimeout(context.Background(), movedTimeout)
	defer cancel()
	if err := b.talk.Moved(ctx, platformName, from, to); err != nil {
		b.log.Warn("cannot store that a chat has a new id: the next call says it again", "platform", platformName, "error", err)
	}
}
