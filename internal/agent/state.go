package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/comfyhub/comfyhub/internal/gossip"
)

// stateVariable is where systemd names the service's own folder.
const stateVariable = "STATE_DIRECTORY"

// identity returns the lasting identity of the agent with this name: agents that
// share a folder have different ones. Without a gossip key the fleet is on this
// machine, hubs reserve names for nobody, and a temporary identity is enough.
func identity(name, key, state string, lookup func(string) (string, bool)) (gossip.Identity, error) {
	if key == "" && state == "" {
		return gossip.NewIdentity(), nil
	}
	folder, err := stateFolder(state, lookup)
	if err != nil {
		return gossip.Identity{}, err
	}
	id, err := gossip.LoadIdentity(filepath.Join(folder, name+".key"))
	if err != nil {
		return gossip.Identity{}, fmt.Errorf("--state %s: %w", folder, err)
	}
	return id, nil
}

// hubPin opens what the agent with this name knows of its hubs, beside its identity.
func hubPin(name, key, given, state string, logger *slog.Logger, lookup func(string) (string, bool)) (*gossip.HubPin, error) {
	file := ""
	if key != "" {
		folder, err := stateFolder(state, lookup)
		if err != nil {
			return nil, err
		}
		file = filepath.Join(folder, name+".hub")
	}
	return gossip.OpenHubPin(file, given, logger)
}

// lasting returns the folder for what must outlive an agent that deletes files; empty for
// one that deletes none.
func lasting(m *machine, state string, lookup func(string) (string, bool)) (string, error) {
	if len(m.outputs) == 0 {
		return "", nil
	}
	return stateFolder(state, lookup)
}

func stateFolder(given string, lookup func(string) (string, bool)) (string, error) {
	if given != "" {
		return given, nil
	}
	if list, _ := lookup(stateVariable); list != "" {
		return filepath.SplitList(list)[0], nil
	}
	base, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("--state: which folder keeps the agent's key? %w", err)
	}
	return filepath.Join(base, "comfyhub-agent"), nil
}
