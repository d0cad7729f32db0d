package caddymodule

import "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

// Gossip is the membership of agents and hubs.
type Gossip struct {
	// Where agents and other hubs join, TCP and UDP. Default: `127.0.0.1:7946`.
	Bind string `json:"bind,omitempty" word:"bind <host:port>"`

	// The address that is announced, if it differs: behind NAT, in a container. Default: the
	// bound address; of `0.0.0.0`, the one from which packets leave.
	Advertise string `json:"advertise,omitempty" word:"advertise <host:port>"`

	// The fleet's secret, which every GPU machine has, of at least 16 bytes: it encrypts gossip and
	// proves agents and hubs to each other. Several, one per line as in a file, are for changing
	// it: the first is used, and all are accepted. Default: none; required off loopback.
	Key string `json:"key,omitempty" word:"key <secret>"`

	// Networks, addresses and host names that agents may give for their ComfyUI, in addition to
	// their own address: `--direct`, plain HTTP. Anyone who has the secret can make the hub call
	// what is listed here, so list little. Default: none.
	AllowDirect []string `json:"allow_direct,omitempty" word:"allow_direct <cidr or host...>"`

	// Networks and addresses that agents may announce without a connection from there: behind NAT,
	// see docs/agents.md#addresses. Default: none.
	AgentsFrom []string `json:"agents_from,omitempty" word:"agents_from <cidr or address...>"`

	// Gossip addresses of other hubs on the same Redis server. Default: none.
	Join []string `json:"join,omitempty" word:"join <host:port...>"`
}

// UnmarshalCaddyfile sets up membership from the block "gossip" of the app.
func (g *Gossip) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	_, err := lines(d, g, "", nil)
	return err
}
