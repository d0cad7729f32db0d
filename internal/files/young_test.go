package files

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// A blob that was just written needs no hold to get its name; any other does.
func TestSetStoredWithoutHold(t *testing.T) {
	t.Parallel()
	const key = "output/ab/abc"
	for name, c := range map[string]struct {
		age          time.Duration
		doomed, held bool
		want         error
	}{
		"just written":                   {},
		"written half an hour ago":       {age: youngFor + time.Minute, want: errUnsafe},
		"written in the future":          {age: -youngFor - time.Minute, want: errUnsafe},
		"being deleted":                  {doomed: true, want: errUnsafe},
		"written long ago, and held now": {age: 10 * time.Hour, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *Store) {
				i := newInstance()
				ref := allotted(t, s, i, "x_00001_.png", "picture")
				e := must(s.Resolve(t.Context(), tenant, ref))
				must(s.storage.Write(t.Context(), key, bytes.NewReader([]byte("picture"))))
				if c.doomed {
					require.Equal(t, "ok", must(s.db.Run(t.Context(), doomScript, key, doomFor.Milliseconds()))[0])
				}
				if c.held {
					require.NoError(t, s.hold(t.Context(), key))
				}
				_, err := s.SetStored(t.Context(), tenant, e, Copied{Key: key, Size: 7, Began: time.Now().Add(-c.age)})
				require.ErrorIs(t, err, c.want)
				if c.want == nil {
					require.Zero(t, s.later(2*time.Hour).sweepAll(t, nil).Files, "it has a name")
					require.Equal(t, "picture", s.mustRead(t, ref))
				}
			})
		})
	}
}

// between calls a function before a script, once.
type between struct {
	call func()
	done atomic.Bool
}

func (b *between) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (b *between) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if cmd.Name() == "evalsha" && !b.done.Swap(true) {
			b.call()
		}
		return next(ctx, cmd)
	}
}

func (b *between) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// A hub that was stopped for hours between the last byte of a copy and its name finds
// that a sweep has deleted the copy, and makes another.
func TestCollectAfterASweep(t *testing.T) {
	t.Parallel()
	i := newInstance()
	s := newStore(t, redistest.Open(t, redistest.Start(t).URL()))
	ref := allotted(t, s, i, "x_00001_.png", "picture")
	stopped := s.later(-2 * time.Hour) // so long ago it began to copy
	c := newCollector(t, stopped, i)
	var swept Swept
	s.db.Client().AddHook(&between{call: func() { swept = s.later(2*time.Hour).sweepAll(t, nil) }})
	_, err := c.Collect(t.Context(), tenant, ref)
	require.Equal(t, 1, swept.Files)
	if err != nil {
		_, err = c.Collect(t.Context(), tenant, ref)
	}
	require.NoError(t, err)
	require.Equal(t, "picture", s.mustRead(t, ref))
}
