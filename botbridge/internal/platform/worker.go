package platform

import (
	"context"
	"time"
)

// Worker is a platform that can show that the bridge is at work, such as "sends a
// picture" at the head of a chat. It disappears by itself.
type Worker interface {
	// Work shows it once. makes is what the work leads to, "" for words. It may do
	// nothing, where that costs more than it says.
	Work(ctx context.Context, to Chat, makes Media) error
	// WorkLasts is how long it is shown.
	WorkLasts() time.Duration
}
