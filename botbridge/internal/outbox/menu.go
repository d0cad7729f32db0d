package outbox

import (
	"context"
	"fmt"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// Menu hides commands from the menu of a group, if the platform has menus; nil shows the
// default menu again. It makes one attempt outside the lane, because the group's messages
// should not wait for a menu.
func (b *Outbox) Menu(ctx context.Context, p platform.Platform, in platform.Chat, without []string) error {
	menued, ok := p.(platform.Menued)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.o.CallTimeout)
	defer cancel()
	if err := b.limiter(p).Wait(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	err := menued.Hide(ctx, in, without)
	b.o.Observe(p.Name(), "menu", resultOf(err))
	return err
}
