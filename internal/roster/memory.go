package roster

import (
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// rememberEvery is the pause between two looks at what is new of the instances.
	rememberEvery = 15 * time.Second
	// seenStep is how much newer the last sign of life of an instance must be to be written alone.
	seenStep = 5 * time.Minute
	// memoryFor is how long an instance is remembered that nobody has any more.
	memoryFor = 7 * 24 * time.Hour
)

//go:embed scripts/remember.lua
var rememberLua string

var rememberScript = redis.NewScript("roster/remember", redis.Write, rememberLua)

// Memory keeps in Redis what the hubs know of the instances of agents: those that vanish while no hub
// runs, or before one restarts, are still shown, with when they were last seen, and those that were
// unhealthy still are. It is safe for concurrent use.
//
// Its key:
//
//	fleet:former  hash  per instance: what it is, when and how it was last seen
type Memory struct {
	DB    *redis.DB
	Fleet *fleet.Registry
	Log   func() *slog.Logger
}

// former is a [fleet.Former] in Redis.
type former struct {
	Agent   string `json:"agent"`
	Key     string `json:"key,omitempty"`
	Kind    string `json:"kind,omitempty"`
	GPU     string `json:"gpu,omitempty"`
	Version string `json:"version,omitempty"`
	VRAM    int64  `json:"vram,omitempty"`
	Boot    int64  `json:"boot,omitempty"`
	Left    bool   `json:"left,omitempty"`
	Sick    string `json:"sick,omitempty"`
	Broken  bool   `json:"broken,omitempty"`
	// At is when it was last seen, in milliseconds by Redis's clock.
	At int64 `json:"at"`
}

// Recall tells the fleet what was known before this start.
func (m *Memory) Recall(ctx context.Context) error {
	stored, err := m.read(ctx)
	if err != nil {
		return err
	}
	list := make([]fleet.Former, 0, len(stored))
	for name, f := range stored {
		list = append(list, fleet.Former{
			Name: name, Agent: f.Agent, Key: f.Key, Kind: f.Kind, GPU: f.GPU, Version: f.Version, VRAMTotal: f.VRAM, Boot: f.Boot,
			Seen: m.DB.Clock().When(f.At), Left: f.Left, Sick: f.Sick, Broken: f.Broken,
		})
	}
	m.Fleet.Remember(list)
	return nil
}

// Run writes what changes until ctx ends.
func (m *Memory) Run(ctx context.Context) {
	tick := time.NewTicker(rememberEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		round, cancel := context.WithTimeout(ctx, roundTimeout)
		if err := m.round(round); err != nil && ctx.Err() == nil {
			m.Log().Debug("cannot remember the instances", "error", err)
		}
		cancel()
	}
}

// Forget removes an instance that is to be forgotten.
func (m *Memory) Forget(ctx context.Context, name string) error {
	_, err := m.DB.Run(ctx, rememberScript, 0, name)
	return err
}

// round writes what is new, and removes what is old.
func (m *Memory) round(ctx context.Context) error {
	stored, err := m.read(ctx)
	if err != nil {
		return err
	}
	now, local := m.DB.Clock().Now(), time.Now()
	args := []any{0}
	for _, f := range m.Fleet.Formers() {
		next := former{f.Agent, f.Key, f.Kind, f.GPU, f.Version, f.VRAMTotal, f.Boot, f.Left, f.Sick, f.Broken, now.Add(f.Seen.Sub(local)).UnixMilli()}
		before, known := stored[f.Name]
		newer := time.Duration(next.At-before.At) * time.Millisecond
		delete(stored, f.Name)
		step := seenStep
		if f.Gone { // nothing more will be heard of it: this is when it was last seen
			step = time.Second
		}
		same := before
		if same.At = next.At; known && (newer < 0 || same == next && newer < step) {
			continue // or another hub has seen it later
		}
		text, err := json.Marshal(next)
		if err != nil {
			return err
		}
		args = append(args, f.Name, text)
	}
	args[0] = len(args) / 2
	for name, f := range stored {
		if now.UnixMilli()-f.At > memoryFor.Milliseconds() {
			args = append(args, name)
		}
	}
	if len(args) == 1 {
		return nil
	}
	_, err = m.DB.Run(ctx, rememberScript, args...)
	return err
}

func (m *Memory) read(ctx context.Context) (map[string]former, error) {
	raw, err := m.DB.Client().HGetAll(ctx, m.DB.Key("fleet", "former")).Result()
	if err != nil {
		return nil, err
	}
	out := make(map[string]former, len(raw))
	for name, text := range raw {
		var f former
		if json.Unmarshal([]byte(text), &f) == nil { // else it is of a newer hub
			out[name] = f
		}
	}
	return out, nil
}
