package shell

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// watchPause is the pause between two looks at the fleet.
	watchPause = time.Second
	// redraw moves to the upper left corner, clearLine clears what is right of the cursor,
	// and clearBelow what is below it. Nothing flickers, as the screen is never empty.
	redraw     = "\x1b[H"
	clearLine  = "\x1b[K"
	clearBelow = "\x1b[J"
)

// watch shows the fleet until ctx ends. While the hub does not answer, the last state stays,
// with how old it is.
func (s *screen) watch(ctx context.Context, v view, all bool) error {
	var (
		last Fleet
		at   time.Time
	)
	fmt.Fprint(s.to, redraw, clearBelow)
	for {
		f, err := readFleet(ctx, v, shortList)
		now := s.now()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			last, at = f, now
		case at.IsZero():
			return err
		}
		var page strings.Builder
		if err != nil {
			fmt.Fprintf(&page, "NO ANSWER for %s: %s\n", short(now.Sub(at)), printable(err.Error()))
		}
		last.show(&page, all, s.width(), now)
		fmt.Fprint(s.to, redraw)
		lines := strings.Split(strings.TrimSuffix(page.String(), "\n"), "\n")
		for _, line := range lines[:min(len(lines), s.height()-1)] {
			fmt.Fprint(s.to, runewidth.Truncate(line, s.width(), "…"), clearLine, "\n")
		}
		fmt.Fprint(s.to, clearBelow)
		if !retry.Sleep(ctx, watchPause) {
			return nil
		}
	}
}
