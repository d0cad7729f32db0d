package demand

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
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
}

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
	return t.Machines.Withdraw(ctx, name)
}

// Tidy implements [scale.Tokens].
func (t *Tokens) Tidy(ctx context.Context) error { return t.Machines.Tidy(ctx) }
