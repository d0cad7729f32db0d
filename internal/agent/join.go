package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/comfyhub/comfyhub/internal/durable"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/tunnel"
)

// joiner gets the token of a machine for one that is good once.
type joiner struct {
	hubs []string
	// once is the token for joining, and state the folder that keeps the machine's own.
	once, state string
	userAgent   string
	client      *http.Client
	log         *slog.Logger
}

// join returns the token of the machine. It is kept before a hub knows it, so that an answer that is
// lost does no harm, and neither does a restart. It asks until a hub has answered.
func (j *joiner) join(ctx context.Context) (own string, err error) {
	if own, err = j.own(); err != nil {
		return "", fmt.Errorf("--state %s: %w", j.state, err)
	}
	pauses := retry.New(pullFirst, pullMost)
	for {
		for _, hub := range j.hubs {
			err = tunnel.Join(ctx, hub, j.once, own, j.userAgent, j.client)
			if err == nil || errors.Is(err, tunnel.ErrToken) {
				return own, err
			}
			j.log.Warn("cannot join, will try again", "hub", hub, "error", err)
		}
		if !pauses.Wait(ctx) {
			return "", ctx.Err()
		}
	}
}

// own is the machine's own token as it was made for this token for joining.
func (j *joiner) own() (string, error) {
	name, err := tunnel.Machine(j.once)
	if err != nil {
		return "", err
	}
	file := filepath.Join(j.state, name+".token")
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if own := strings.TrimSpace(string(data)); own != "" {
		return own, nil
	}
	own := name + tunnel.Separator + rand.Text()
	if err := os.MkdirAll(j.state, 0o700); err != nil {
		return "", err
	}
	return own, durable.WriteFile(file, []byte(own+"\n"))
}
