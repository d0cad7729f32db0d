package caddymodule

// Gossip is the membership of agents and hubs.
type Gossip struct {
	// Address to bind, `host:port`, for TCP and UDP. Default: `127.0.0.1:7946`.
	Bind string `json:"bind,omitempty"`

	// Address that others are told to dial, `host:port`, if it differs from `bind`:
	// behind NAT, in a container. Default: the bound address.
	Advertise string `json:"advertise,omitempty"`

	// Secret that encrypts gossip and authenticates agents to the hub and the hub
	// to agents. Required, with at least 16 bytes, unless `bind` is a loopback
	// address: without it anyone who reaches the port could join and be given work.
	// Several secrets, one per line as in a file, are for changing it: the first is
	// used, and all are accepted.
	Key string `json:"key,omitempty"`

	// Networks, addresses and host names at which agents may say that their ComfyUI
	// is: with `--direct`, at another address than their own, or over plain HTTP.
	// Anyone who has the secret can make the hub call what is listed here, so list
	// little. Default: none; the hub then calls an agent only at its own address,
	// with TLS, and only if the agent proves its identity.
	AllowDirect []string `json:"allow_direct,omitempty"`

	// Gossip addresses of other hubs on the same Redis, `host:port`.
	Join []string `json:"join,omitempty"`
}
