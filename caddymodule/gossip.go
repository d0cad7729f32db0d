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
	// anyone who reaches the port could join and be given work. At least 16
	// bytes then. Several on a line each, as a file may have them, are for
	// changing it: the first is used, each is accepted.
	Key string `json:"key,omitempty"`

	// Networks, addresses and host names at which agents may say that their
	// ComfyUI is: with `--direct`, at another address than their own, or over
	// plain HTTP. Whoever has the secret can make the hub call what is named
	// here, so name little. Default: none; the hub then calls an agent only at
	// its own address, with TLS, and only if it proves that it is that agent.
	AllowDirect []string `json:"allow_direct,omitempty"`

	// Gossip addresses of other hubs on the same Redis, `host:port`.
	Join []string `json:"join,omitempty"`
}
