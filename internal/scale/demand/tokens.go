package demand

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/machines"
	"github.com/comfyhub/comfyhub/internal/scale"
)

// Tokens lets machines join that package scale has started.
type Tokens struct {
	Machines *machines.Machines
	// Sealer keeps them from whoever reads Redis.
	Sealer *keyring.Sealer
	// Forget releases the name of a machine and what is known of it, and reports whether the machine
	// was gone. Names are kept for weeks else, and there is room for only so many.
	Forget func(ctx context.Context, name string) (gone bool, err error)

	mu sync.Mutex
	// ended is when machines ended whose names are to be released. It does not outlive the hub: the
	// few names that it has then are released with time.
	ended map[string]time.Time
}

const (
	// goneAfter is how long a machine that was ended may still report to a hub, which looks at its
	// token now and then. A name that is released before comes back.
	goneAfter = 2 * time.Minute
	// maxEnded bounds the names that are to be released.
	maxEnded = 1000
)

// joinLabel binds sealed tokens to their purpose.
const joinLabel = "join"

// Make implements [scale.Tokens].
func (t *Tokens) Make(ctx context.Context, names []string, within time.Duration) (string, error) {
	list := make([]scale.Join, len(names))
	for n, name := range names {
		if err := fleet.CheckName(name); err != nil {
			return "", fmt.Errorf("a machine cannot be called %q: %w", name, err)
		}
		token, err := t.Machines.Invite(ctx, name, within)
		if err != nil {
			return "", err
		}
		list[n] = scale.Join{Name: name, Token: token}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	sealed, err := t.Sealer.Seal(text, []byte(joinLabel))
	return base64.StdEncoding.EncodeToString(sealed), err
}

// Open implements [scale.Tokens].
func (t *Tokens) Open(ctx context.Context, sealed string) (list []scale.Join, err error) {
	text, err := base64.StdEncoding.DecodeString(sealed)
	if err == nil {
		text, err = t.Sealer.Open(ctx, text, []byte(joinLabel))
	}
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("the tokens of machines cannot be read: %w", err)
	}
	return list, nil
}

// End implements [scale.Tokens].
func (t *Tokens) End(ctx context.Context, name string) error {
	if err := t.Machines.Withdraw(ctx, name); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = map[string]time.Time{}
	}
	if len(t.ended) < maxEnded {
		t.ended[name] = time.Now()
	}
	return nil
}

// Tidy implements [scale.Tokens]. It also releases the names of machines that have ended.
func (t *Tokens) Tidy(ctx context.Context) error {
	for _, name := range t.over() {
		gone, err := t.Forget(ctx, name)
		if err != nil {
			return fmt.Errorf("the name of a machine that has ended: %w", err)
		}
		if gone {
			t.mu.Lock()
			delete(t.ended, name)
			t.mu.Unlock()
		}
	}
	return t.Machines.Tidy(ctx)
}

// over are the machines that have been ended long enough.
func (t *Tokens) over() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, at := range t.ended {
		if time.Since(at) >= goneAfter {
			names = append(names, name)
		}
	}
	return names
}
