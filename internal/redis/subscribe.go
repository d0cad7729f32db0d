package redis

import (
	"context"

	goredis "github.com/redis/go-redis/v9"
)

// Notice is what a subscriber gets: the payload of a message, or the news
// that messages may have been missed.
type Notice struct {
	Payload string
	// Resync is true on the first notice and after each reconnection:
	// whatever was published before it is lost, so look at the data itself.
	Resync bool
}

// Subscribe listens to a channel named as [DB.Key] names keys, until the
// context ends; then the returned channel is closed. Messages are hints: they
// are lost while the connection is away, and a reader that lags far behind
// loses some, too.
func (db *DB) Subscribe(ctx context.Context, channel string) <-chan Notice {
	out := make(chan Notice, 64)
	go func() {
		defer close(out)
		sub := db.pubsub.Subscribe(ctx, channel)
		defer sub.Close()
		in := sub.ChannelWithSubscriptions(goredis.WithChannelSize(1024))
		for {
			var notice Notice
			select {
			case <-ctx.Done():
				return
			case message, ok := <-in:
				if !ok {
					return
				}
				switch m := message.(type) {
				case *goredis.Message:
					notice.Payload = m.Payload
				case *goredis.Subscription:
					notice.Resync = true
				default:
					continue
				}
			}
			select {
			case <-ctx.Done():
				return
			case out <- notice:
			}
		}
	}()
	return out
}
