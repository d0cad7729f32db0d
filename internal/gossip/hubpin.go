package gossip

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/durable"
)

// HubPin is what an agent knows of its hubs: the key that they alone have, see
// [Authority]. An agent that has not been given it takes that of the first hub which
// calls it and has the gossip key. From then on the gossip key opens nothing, and a
// change of the hubs' key counts only if the known one has signed the next.
//
// Before that, hubs that are too old to have such a key are accepted by the gossip key
// alone.
type HubPin struct {
	file string
	log  *slog.Logger

	mu sync.Mutex
	// keys begins with the key that was given or found first; the last is in use.
	keys []string
	// former was in use until it was replaced, and counts for a little longer: the
	// clocks of hubs differ.
	former      string
	formerUntil time.Time
	told        map[string]time.Time // by what is complained of
}

const (
	// formerFor is how long hubs may go on with a key that another has replaced.
	formerFor = 5 * time.Minute
	// complainEvery is how often the same complaint about callers is logged.
	complainEvery = time.Minute
)

// NewHubPin returns a pin that knows no hub yet and ends with the process.
func NewHubPin(logger *slog.Logger) *HubPin {
	return &HubPin{log: logger, told: map[string]time.Time{}}
}

// OpenHubPin reads from a file which key the hubs have, and notes changes there. A given
// key, as [Authority.Key] returns it, replaces another one, but not those that it has
// vouched for since. It may be empty, and so may the file: then the pin ends with the process.
func OpenHubPin(file, given string, logger *slog.Logger) (*HubPin, error) {
	p := NewHubPin(logger)
	p.file = file
	if given != "" {
		if _, err := parseKey(given); err != nil {
			return nil, fmt.Errorf("key of the hubs: %w: `comfyhub hub-key` prints it", err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil && file != "" && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("key of the hubs: %w", err)
	}
	p.keys = strings.Fields(string(text))
	// One that a power cut has emptied must not make the agent believe whoever calls next.
	damaged := err == nil && len(p.keys) == 0 && given == ""
	for _, key := range p.keys {
		_, err := parseKey(key)
		damaged = damaged || err != nil
	}
	if damaged {
		return nil, fmt.Errorf("key of the hubs: %s is damaged: delete it, and the agent takes the key of the next hub that calls", file)
	}
	if given == "" || given == p.current() && given == p.keys[0] {
		return p, nil
	}
	if !slices.Contains(p.keys, given) || given == p.current() {
		p.keys = []string{given}
		return p, p.write()
	}
	return p, nil
}

// current is the key in use, empty if none is known. The caller holds the lock, or has
// the pin alone.
func (p *HubPin) current() string {
	if len(p.keys) == 0 {
		return ""
	}
	return p.keys[len(p.keys)-1]
}

// accept checks who has called.
func (p *HubPin) accept(s tls.ConnectionState, groups []ed25519.PublicKey) error {
	if len(s.PeerCertificates) == 0 {
		return ErrPeer
	}
	shown := s.PeerCertificates
	theirs, ok := shown[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return ErrPeer
	}
	key := keyText(theirs)
	byGroup := slices.ContainsFunc(groups, func(g ed25519.PublicKey) bool { return vouched(shown, g) })
	old := holds(groups...)(s) == nil
	p.mu.Lock()
	defer p.mu.Unlock()
	current := p.current()
	switch {
	case current == "" && old:
		p.complain(slog.LevelWarn, "a hub is older than this agent: until it is upgraded, whoever has the gossip key can use the instances of this agent", "")
		return nil
	case current == "" && byGroup:
		p.take(key)
		p.log.Info("this agent now takes orders from these hubs", "hub_key", key)
		return nil
	case key == current, key == p.former && time.Now().Before(p.formerUntil):
		return nil
	case current != "" && vouched(shown, mustParse(current)):
		p.former, p.formerUntil = current, time.Now().Add(formerFor)
		p.take(key)
		p.log.Info("the hubs' key has changed", "hub_key", key)
		return nil
	case current != "" && old:
		p.complain(slog.LevelWarn, "refused a caller that shows nothing but the gossip key: a machine that is no hub, or a hub that is older than this agent and must be upgraded", "")
	case current != "" && byGroup:
		p.complain(slog.LevelError, "refused a hub whose key is not that of this agent's hubs; if the storage of the hubs was replaced, delete the file or give --hub-key, and restart the agent", key)
	}
	return ErrPeer
}

// take makes a key the one in use. The caller holds the lock.
func (p *HubPin) take(key string) {
	p.keys = append(p.keys[:min(len(p.keys), 1)], key)
	if err := p.write(); err != nil {
		p.log.Error("cannot save the hubs' key: it is forgotten when the agent stops", "error", err)
	}
}

func (p *HubPin) write() error {
	if p.file == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.file), 0o700); err != nil {
		return fmt.Errorf("key of the hubs: %w", err)
	}
	if err := durable.WriteFile(p.file, []byte(strings.Join(p.keys, "\n")+"\n")); err != nil {
		return fmt.Errorf("key of the hubs: %w", err)
	}
	return nil
}

// complain logs a fault of callers, now and then. The caller holds the lock.
func (p *HubPin) complain(level slog.Level, what, key string) {
	if now := time.Now(); now.Sub(p.told[what]) >= complainEvery {
		p.told[what] = now
		args := []any{"hub_key", cmp.Or(p.current(), "none yet"), "file", cmp.Or(p.file, "none")}
		if key != "" {
			args = append(args, "callers_key", key)
		}
		p.log.Log(context.Background(), level, what, args...)
	}
}

// mustParse decodes a key that was checked when it was read, or comes from a certificate.
func mustParse(key string) ed25519.PublicKey {
	public, _ := parseKey(key)
	return public
}
