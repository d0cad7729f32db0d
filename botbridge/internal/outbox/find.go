package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// ErrUnsettled means that the outbox was stopped before it was known whether a post had
// arrived. Once.After of the next attempt goes on with that.
var ErrUnsettled = errors.New("outbox: stopped before it was known what became of a post")

// Once says how a post is sent that must not be there twice.
type Once struct {
	// Mark, unless it is nil, is called before and after each attempt.
	Mark Mark
	// After is what Mark was last told, if an attempt was made whose fate is unknown.
	After string
	// Known, unless it is nil, reports whether a message is known to be something else: this
	// process may not have sent it.
	Known platform.Known
	// Since is when an attempt was made whose fate is unknown, if a Recaller may be asked.
	Since time.Time
	// Asking is said, and taken back, while it is made sure that files are not there. Without
	// it, files that cannot be found are in doubt.
	Asking string
}

// Mark records that a post is about to be sent, and after which message it will be; or that it
// was not sent after all. If it fails, the post is not sent.
type Mark func(ctx context.Context, sending bool, after string) error

// search finds out what became of a post.
type search struct {
	platform.Finder
	post platform.Post
	once Once
	// after is the message after which a post of unknown fate would be, "" if there is none.
	after string
	ids   *[]string
}

// searchFor returns nil if the platform cannot be asked.
func searchFor(p platform.Platform, post platform.Post, once *Once, ids *[]string) *search {
	finder, ok := p.(platform.Finder)
	if !ok || once == nil {
		return nil
	}
	return &search{Finder: finder, post: post, once: *once, after: once.After, ids: ids}
}

func (s *search) lost() bool { return s != nil && s.after != "" }

// Finds reports whether it can always be found out what became of a post.
func Finds(p platform.Platform) bool {
	_, ok := p.(platform.Finder)
	return ok
}

// Recalls reports whether a platform can be asked for a post whose ID it no longer knows.
func Recalls(p platform.Platform) bool {
	_, ok := p.(platform.Recaller)
	return ok && p.Limits().KnowsPosts
}

// recaller returns what asks for a post, nil if nothing can.
func recaller(p platform.Platform, post platform.Post, once *Once, ids *[]string) func(context.Context, platform.Chat, time.Time) error {
	asked, ok := p.(platform.Recaller)
	if !ok || once == nil {
		return nil
	}
	known := once.Known
	if known == nil {
		known = func(context.Context, string) (bool, error) { return false, nil }
	}
	return func(ctx context.Context, in platform.Chat, since time.Time) (err error) {
		*ids, err = asked.Recall(ctx, in, post, since, known)
		return err
	}
}

// recall asks for the post of a call of which an earlier attempt may have arrived, when its id
// no longer helps. If it is not there, it can be sent again.
func (l *lane) recall(c *call) (there bool, err error) {
	if c.recall == nil {
		return false, fmt.Errorf("%w: and it is too late to ask again", platform.ErrUncertain)
	}
	err = l.ask(c, 0, func(ctx context.Context, to platform.Chat) error { return c.recall(ctx, to, c.doubt) })
	if platform.Permanent(err) {
		err = fmt.Errorf("%w: %w", platform.ErrUncertain, err)
	}
	return err == nil && len(*c.ids) > 0, err
}

// find looks for the post of a call. If it is not there, it can be sent again.
//
// A server whose answer was lost may still be busy with a file that it was sent, so the second
// look, which counts, comes late.
func (l *lane) find(c *call) (there bool, err error) {
	looks := []func(*call) (bool, error){l.lookNear}
	if len(c.find.post.Files) > 0 {
		looks = append(looks, l.lookBelow)
	}
	for i, look := range looks {
		if !l.rest(c.ctx, [...]time.Duration{3 * time.Second, 25 * time.Second}[i]) {
			return false, ErrUnsettled
		}
		if there, err = look(c); there || err != nil {
			return there, err
		}
	}
	c.find.after = ""
	if err := c.mark(c.ctx, false, ""); err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
	return false, nil
}

// lookBelow posts something else and looks at every message before it: the post is one of them
// or none.
func (l *lane) lookBelow(c *call) (there bool, err error) {
	if c.find.once.Asking == "" {
		return false, fmt.Errorf("%w: and it cannot be found", platform.ErrUncertain)
	}
	asking := platform.Post{Text: c.find.once.Asking, ReplyTo: c.find.post.ReplyTo, Quiet: true}
	var asked []string
	tries := 0
	err = l.ask(c, 1, func(ctx context.Context, to platform.Chat) (err error) {
		tries++
		asked, err = l.p.Send(ctx, to, asking)
		return err
	})
	if err != nil || len(asked) == 0 {
		return false, err
	}
	below := asked[0]
	there, err = l.look(c, below)
	if tries > 1 { // an earlier one may be there, too
		strays, _, _ := l.among(c, asking, below)
		asked = append(asked, strays...)
	}
	for _, message := range asked {
		_ = l.ask(c, 0, func(ctx context.Context, to platform.Chat) error { return l.p.Delete(ctx, to, message) })
	}
	return there, err
}

// lookNear looks where the post should be. If it is not there, it is no older than what was the
// newest message by then, which is noted: the next process need not look so far back.
func (l *lane) lookNear(c *call) (there bool, err error) {
	newest := c.find.Newest(c.to, c.find.post, c.find.after)
	if list, all := c.find.Candidates(c.to, c.find.after, "", 1); !all && len(list) > 0 {
		newest = list[len(list)-1]
	}
	if there, err = l.look(c, ""); there || err != nil {
		return there, err
	}
	c.find.after = newest
	if err := c.mark(c.ctx, true, newest); err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
	return false, nil
}

// look looks for the post of a call among the messages before another; "" is the next few.
func (l *lane) look(c *call, before string) (there bool, err error) {
	ids, all, err := l.among(c, c.find.post, before)
	switch {
	case err != nil:
		return false, err
	case len(ids) > 0:
		*c.find.ids = ids
		return true, nil
	case before != "" && !all:
		return false, fmt.Errorf("%w: too many messages may be it", platform.ErrUncertain)
	}
	return false, nil
}

// among returns the messages that show a post.
func (l *lane) among(c *call, post platform.Post, before string) (ids []string, all bool, err error) {
	parts := max(1, len(post.Files))
	list, all := c.find.Candidates(c.to, c.find.after, before, parts)
	for _, message := range list {
		is := false
		err := l.ask(c, 0, func(ctx context.Context, to platform.Chat) (err error) {
			if known := c.find.once.Known; known != nil {
				if other, err := known(ctx, message); other || err != nil {
					return err
				}
			}
			is, err = c.find.Is(ctx, to, message, post, len(ids))
			return err
		})
		if err != nil {
			return nil, false, err
		}
		if is {
			ids = append(ids, message)
		}
		if len(ids) == parts {
			break
		}
	}
	return ids, all, nil
}

// ask repeats a call that helps to find a post.
func (l *lane) ask(c *call, counts int, do func(context.Context, platform.Chat) error) error {
	err := l.repeat(&call{
		to: c.to, kind: "find", counts: counts, settled: true, timeout: l.box.o.CallTimeout, do: do, ctx: c.ctx, given: time.Now(),
	})
	switch {
	case errors.Is(err, ErrNotSent):
		return ErrUnsettled
	case errors.As(err, new(*platform.MovedError)), errors.Is(err, ErrGaveUp):
		return fmt.Errorf("%w: %w", platform.ErrUncertain, err)
	}
	return err
}
