package caddymodule

// Gossip is the membership of agents and hubs.
type Gossip struct {
	// Address to bind, `host:port`, for TCP and UDP. Default: `127.0.0.1:7946`.
	Bind string `json:"bind,omitempty"`

	// Address that others are told to dial, `host:port`, where it differs from
	// the one to bind: behind NAT, in a container. Default: what is bound.
	Advertise string `json:"advertise,omitempty"`

	// Secret that encrypts gossip and authenticates agents to the hub and the
	// hub to agents. Required unless `bind` is a loopback address: without it
	// anyone who reaches the port could join and be given work.
	Key string `json:"key,omitempty"`

	// Gossip addresses of other hubs on the same Redis, `host:port`.
	Join []string `json:"join,omitempty"`
}
