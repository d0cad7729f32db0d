package system

import (
	"context"
	"net"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/agent"
	"github.com/comfyhub/comfyhub/internal/gossip"
)

// Agent is the process of an agent: the real one, on the machine of its ComfyUI server, but
// with a network address of its own, so that one of the two can fail without the other.
type Agent struct {
	w        *World
	name     string
	comfy    *Comfy
	identity gossip.Identity
	pin      *gossip.HubPin
	stop     context.CancelFunc
	ended    chan struct{}
}

func newAgent(w *World, name string, comfy *Comfy) *Agent {
	return &Agent{w: w, name: name, comfy: comfy, identity: gossip.NewIdentity(), pin: gossip.NewHubPin(w.log)}
}

// Start implements process; the agent knows its hubs by the key of the process before.
func (a *Agent) Start() {
	var ctx context.Context
	ctx, a.stop = context.WithCancel(context.Background())
	ended := make(chan struct{})
	a.ended = ended
	inside := agent.Inside{
		Name: a.name, Server: a.comfy.URL(), Bind: a.w.gossipAt(a.name), Serve: net.JoinHostPort(a.w.Net.IP(a.name).String(), "7947"),
		Key: gossipKey, Identity: a.identity, Hubs: a.pin, Logger: a.w.log.With("agent", a.name),
		Network: agent.Network{
			Dial:   a.w.Net.Dialer(a.name),
			Listen: func(address string) (net.Listener, error) { return a.w.Net.Listen(address) },
			Gossip: newChatter(a.w, a.name),
		},
	}
	for _, h := range a.w.Hubs {
		inside.Join = append(inside.Join, a.w.gossipAt(h.name))
	}
	a.w.work.Go(func() {
		defer close(ended)
		if err := inside.Run(ctx); err != nil && ctx.Err() == nil {
			require.NoError(a.w.t, err)
		}
	})
}

// Kill implements process.
func (a *Agent) Kill() {
	a.w.Net.Kill(a.name)
	a.stop()
}

// Stop implements process.
func (a *Agent) Stop() {
	a.stop()
	<-a.ended
}
