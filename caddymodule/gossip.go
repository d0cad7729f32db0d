package caddymodule

import "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

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

	// Networks and addresses in which agents are believed to be where they say. Without
	// it, and elsewhere, the hub calls an agent only at an address from which a
	// connection has come to its gossip port; behind NAT these differ.
	AgentsFrom []string `json:"agents_from,omitempty"`

	// Gossip addresses of other hubs on the same Redis, `host:port`.
	Join []string `json:"join,omitempty"`
}

// UnmarshalCaddyfile sets up membership from the block "gossip" of the app.
func (g *Gossip) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	var seen words
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if list, check := g.list(d.Val()); list != nil {
			if err := addAll(d, list, check); err != nil {
				return err
			}
			continue
		}
		if seen.again(d.Val()) {
			return d.Errf("%s is given twice", d.Val())
		}
		if err := setWord(d, g.set); err != nil {
			return err
		}
	}
	return nil
}

// list returns the list that a word adds to, and what checks its items; nil for other words.
func (g *Gossip) list(word string) (list *[]string, check func(string) error) {
	switch word {
	case "join":
		return &g.Join, checkHostPort
	case "allow_direct":
		return &g.AllowDirect, checkAllowDirect
	case "agents_from":
		return &g.AgentsFrom, checkAgentsFrom
	}
	return nil, nil
}

func (g *Gossip) set(word, value string) (err error) {
	switch word {
	case "bind":
		g.Bind, err = value, checkHostPort(value)
	case "advertise":
		g.Advertise, err = value, checkHostPort(value)
	case "key":
		g.Key = value
	default:
		return errUnknownWord
	}
	return err
}
