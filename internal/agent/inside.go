package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/comfyhub/comfyhub/internal/gossip"
)

// Network is how an agent reaches other machines, and they it. The zero value is TCP and
// UDP.
type Network struct {
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Listen func(address string) (net.Listener, error)
	// Gossip carries the gossip of one agent.
	Gossip gossip.Transport
}

func (n Network) listen(address string) (net.Listener, error) {
	if n.Listen != nil {
		return n.Listen(address)
	}
	return (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
}

// Inside is an agent that is no process of its own: one of a simulated fleet.
type Inside struct {
	// Name is the agent's, and of its only instance.
	Name string
	// Server is the URL of its ComfyUI server, and Join the addresses of hubs' gossip.
	Server string
	Join   []string
	// Bind is where it listens for gossip, Serve for hubs; host:port.
	Bind, Serve string
	// Key is the gossip key, Identity the agent's own, and Hubs what it knows of its hubs.
	Key      string
	Identity gossip.Identity
	Hubs     *gossip.HubPin
	Network  Network
	Logger   *slog.Logger
}

// Run runs the agent until ctx ends, and does not wait for what its server runs then.
func (i Inside) Run(ctx context.Context) error {
	list, err := targets(i.Name, []string{i.Server}, nil, nil)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return config{
		name: i.Name, version: version(), join: i.Join, targets: list, bind: i.Bind, serve: i.Serve, network: i.Network,
		key: i.Key, identity: i.Identity, hubPin: i.Hubs, logger: i.Logger, simulated: true,
	}.run(ctx)
}
