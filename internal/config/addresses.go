package config

import (
	"fmt"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
)

// Keyed reports whether the gossip has a key. Without one it is on loopback only.
func (id Identity) Keyed() bool { return len(gossip.Keys(id.GossipKey)) > 0 }

// AddressPolicy returns what the settings say about the addresses that agents report.
func (s Settings) AddressPolicy(local bool) (fleet.Policy, error) {
	p := fleet.Policy{Local: local, Prefix: comfyui.InstancePath}
	for _, text := range s.AllowDirect {
		if err := p.ParseAllowed(text); err != nil {
			return p, fmt.Errorf("allow_direct: %w", err)
		}
	}
	for _, text := range s.AgentsFrom {
		if err := p.ParseFrom(text); err != nil {
			return p, fmt.Errorf("agents_from: %w", err)
		}
	}
	return p, nil
}

// CheckAgentsFrom says what is wrong with an entry of Settings.AgentsFrom.
func CheckAgentsFrom(text string) error { return new(fleet.Policy).ParseFrom(text) }

// CheckAllowDirect says what is wrong with an entry of Settings.AllowDirect.
func CheckAllowDirect(text string) error { return new(fleet.Policy).ParseAllowed(text) }
