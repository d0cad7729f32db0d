package agent

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
)

// envPrefix begins the environment variables that correspond to flags.
const envPrefix = "COMFYHUB_AGENT_"

// keyVariable holds the gossip key, under the same name as at the hub.
const keyVariable = "COMFYHUB_GOSSIP_KEY"

// fromEnvironment sets each flag that was not given from its variable. Empty
// variables count as unset: compose files pass them for unset options.
func fromEnvironment(cmd *cobra.Command, lookup func(string) (string, bool)) error {
	var first error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := lookup(name)
		if !ok || value == "" || f.Changed || first != nil {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			first = fmt.Errorf("%s: %w", name, err)
		}
	})
	return first
}

// readKey returns the gossip key from the file, or from the environment.
func readKey(file string, lookup func(string) (string, bool)) (string, error) {
	if file == "" {
		key, _ := lookup(keyVariable)
		return strings.TrimSpace(key), nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--key-file: %w", err)
	}
	key := strings.TrimSpace(string(data))
	if key == "" {
		return "", fmt.Errorf("--key-file %s: empty", file)
	}
	return key, nil
}

// errFull means that an agent has all the instances that hubs would accept of it.
var errFull = fmt.Errorf("an agent brings in %d at most: start another agent, with another --name, for the rest", fleet.MaxInstances)

// target is a server that the agent adds to the fleet.
type target struct {
	name string
	// url is where the agent reaches it.
	url string
	// direct is where the hub may reach it instead of through the agent.
	direct string
	// gpu names the GPU that it uses; empty if nobody has said so.
	gpu string
	// output is its output folder, from which files are deleted that the hub keeps; empty
	// if none are.
	output string
	// a1111 means that it is a server of A1111's API.
	a1111 bool
}

// kind is that of its instance.
func (t target) kind() string {
	if t.a1111 {
		return fleet.KindA1111
	}
	return fleet.KindComfyUI
}

// targets names the servers, those of ComfyUI and then those of A1111: after the agent if
// there is one, with a number if there are several, or as the flag says (NAME=URL).
func targets(agent string, servers, direct, a1111 []string) ([]target, error) {
	if len(direct) > 0 && len(direct) != len(servers) {
		return nil, fmt.Errorf("--direct: want one for each --comfyui, in the same order: %d for %d", len(direct), len(servers))
	}
	all := slices.Concat(servers, a1111)
	if len(all) > fleet.MaxInstances {
		return nil, fmt.Errorf("--comfyui, --a1111: %d instances, and %w", len(all), errFull)
	}
	list := make([]target, len(all))
	used := map[string]bool{}
	for i, s := range all {
		t := target{name: agent, url: s, a1111: i >= len(servers)}
		flag := "--comfyui"
		if t.a1111 {
			flag = "--a1111"
		}
		if len(all) > 1 {
			t.name = fmt.Sprintf("%s-%d", agent, i+1)
		}
		if name, address, ok := strings.Cut(s, "="); ok && !strings.ContainsAny(name, ":/") {
			t.name, t.url = name, address
		}
		if err := gossip.CheckName(t.name); err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		if used[t.name] {
			return nil, fmt.Errorf("%s: two instances are named %q", flag, t.name)
		}
		used[t.name] = true
		if len(direct) > 0 && !t.a1111 {
			t.direct = direct[i]
			if u, err := url.Parse(t.direct); err != nil || u.Host == "" {
				return nil, fmt.Errorf("--direct %q: want http://host:port or https://host:port", t.direct)
			}
		}
		list[i] = t
	}
	return list, nil
}

// ownNames makes the names of the servers those that a token admits: NAME=URL is MACHINE-NAME.
func ownNames(machine string, list []target) error {
	used := map[string]bool{}
	for n := range list {
		t := &list[n]
		if !fleet.OwnName(machine, t.name) {
			t.name = machine + "-" + t.name
		}
		if err := gossip.CheckName(t.name); err != nil {
			return fmt.Errorf("--comfyui, --a1111: %w", err)
		}
		if used[t.name] {
			return fmt.Errorf("--comfyui, --a1111: two instances are named %q", t.name)
		}
		used[t.name] = true
	}
	return nil
}

// hostName returns a valid name made from the machine's.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "agent"
	}
	name, _, _ = strings.Cut(name, ".")
	name = strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", r) {
			return r
		}
		return '-'
	}, name)
	name = strings.TrimLeft(name, "-_")
	name = name[:min(len(name), 40)] // leaves room for the numbers of instances
	if gossip.CheckName(name) != nil {
		return "agent"
	}
	return name
}
