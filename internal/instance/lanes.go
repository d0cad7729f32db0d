package instance

import (
	"context"
	"sync"
)

// lanes let one caller at a time work for each owner, so that a machine with hundreds of instances,
// each with an answer of the maximum size, takes the memory of one, and a slow one holds up nobody
// else.
type lanes struct {
	mu   sync.Mutex
	open map[string]*lane
}

type lane struct {
	users int // those who work in it or wait for it
	turn  chan struct{}
}

// enter waits for the owner's turn. The caller must call leave unless there is an error, which is
// the context's.
func (l *lanes) enter(ctx context.Context, owner string) (leave func(), err error) {
	l.mu.Lock()
	if l.open == nil {
		l.open = map[string]*lane{}
	}
	mine := l.open[owner]
	if mine == nil {
		mine = &lane{turn: make(chan struct{}, 1)}
		l.open[owner] = mine
	}
	mine.users++
	l.mu.Unlock()
	select {
	case mine.turn <- struct{}{}:
		return func() { <-mine.turn; l.done(owner, mine) }, nil
	case <-ctx.Done():
		l.done(owner, mine)
		return nil, ctx.Err()
	}
}

func (l *lanes) done(owner string, mine *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mine.users--; mine.users == 0 {
		delete(l.open, owner)
	}
}
