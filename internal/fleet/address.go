package fleet

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Policy restricts the addresses that agents may make a hub call. A stolen machine
// must not make the hub call its own loopback, a neighbour, or the metadata service
// of a cloud.
type Policy struct {
	// Local means that the whole fleet is on this machine: its gossip is on
	// loopback and has no key.
	Local bool
	// Prefix is the start of the path of an instance that its agent serves.
	Prefix string
	// Networks and Hosts are allowed in addition, also over plain HTTP. Hosts are
	// names in lower case.
	Networks []netip.Prefix
	Hosts    []string
	// From are the networks in which agents are believed to be where they say. At other
	// addresses they are once they have called from there.
	From []netip.Prefix
}

// Expects reports whether agents at an address are believed to be there.
func (p *Policy) Expects(a netip.Addr) bool {
	return slices.ContainsFunc(p.From, func(n netip.Prefix) bool { return n.Contains(a) })
}

// ParseFrom parses a network or an address from which agents are expected.
func (p *Policy) ParseFrom(text string) error {
	var networks Policy
	if err := networks.ParseAllowed(text); err != nil || len(networks.Networks) == 0 {
		return fmt.Errorf("%q is no network or address", text)
	}
	p.From = append(p.From, networks.Networks...)
	return nil
}

// ParseAllowed parses a network, an address or a host name that is allowed.
func (p *Policy) ParseAllowed(text string) error {
	if network, err := netip.ParsePrefix(text); err == nil {
		p.Networks = append(p.Networks, network.Masked())
		return nil
	}
	if addr, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		addr = addr.Unmap()
		p.Networks = append(p.Networks, netip.PrefixFrom(addr, addr.BitLen()))
		return nil
	}
	if text == "" || strings.ContainsAny(text, "/:*@? ") {
		return fmt.Errorf("%q is no network, address or host name", text)
	}
	p.Hosts = append(p.Hosts, strings.ToLower(text))
	return nil
}

// TunnelScheme is that of the address of an instance behind a tunnel. No other agent can
// make a hub call such an address.
const TunnelScheme = "tunnel"

// TunnelKey stands in for the key of an agent that a token admits. No public key looks like it.
const TunnelKey = "token"

// WorkerScheme is that of the address of a worker, which only this hub has. No agent can
// make a hub call such an address.
const WorkerScheme = "worker"

// WorkerName returns the name of a machine's worker as an instance, which is its address,
// too. No agent and no static instance can have it.
func WorkerName(machine, id string) string { return WorkerScheme + ":" + machine + "/" + id }

// OverflowScheme is that of the address of a slot of a serverless endpoint. No agent can make a
// hub call such an address.
const OverflowScheme = "overflow"

// OverflowName returns the name of a slot of an endpoint as an instance, which is its address,
// too; slots count from 1. All hubs have the same ones, and no agent and no static instance can
// have it.
func OverflowName(endpoint string, slot int) string {
	return OverflowScheme + ":" + endpoint + "/" + strconv.Itoa(slot)
}

// IsOverflow reports whether an instance is a slot of an endpoint, perhaps one that only other hubs
// have.
func IsOverflow(endpoint, instance string) bool {
	return strings.HasPrefix(instance, OverflowScheme+":"+endpoint+"/")
}

// notAllowed is the reason that everybody may see. Addresses are for the operator
// only.
const notAllowed = "the hub may not call its address: the hub's log says which, gossip { allow_direct ... } or { agents_from ... } in the Caddyfile allows it"

// Restrict removes the addresses that the hub must not call from a report. Their
// instances are shown, offline; faults says by name what is wrong with them. An instance
// whose name the machine must not use is left out: the name stays free.
func (p Policy) Restrict(r Report) (allowed Report, faults map[string]string) {
	all := r.Instances
	r.Instances = make([]InstanceReport, 0, len(all))
	faults = map[string]string{}
	for _, i := range all {
		if r.Sender.Tunnel && !OwnName(r.Agent, i.Name) {
			faults[i.Name] = fmt.Sprintf("its machine's token admits only the names %s and %s-...", r.Agent, r.Agent)
			continue
		}
		if fault := p.fault(i, r.Sender); fault != "" {
			faults[i.Name] = fault
			i = InstanceReport{Name: i.Name, Kind: i.Kind, Reason: notAllowed}
		}
		r.Instances = append(r.Instances, i)
	}
	return r, faults
}

// OwnName reports whether an instance may have a name if a token admits its machine: that of the
// machine, or one that begins with it and a dash. Reserved instances are known by their names.
func OwnName(machine, instance string) bool {
	return instance == machine || strings.HasPrefix(instance, machine+"-")
}

// fault describes what is wrong with the address of an instance; empty for nothing.
func (p Policy) fault(i InstanceReport, from Sender) string {
	u, err := url.Parse(i.URL)
	if from.Tunnel {
		if err != nil || u.Scheme != TunnelScheme || u.User != nil || u.RawQuery != "" || u.Fragment != "" || i.Direct || u.EscapedPath() != p.Prefix+i.Name {
			return "its agent gives an address outside its tunnel"
		}
		return ""
	}
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "its agent gives no address that a hub can use"
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "its agent gives an address with more than host, port and path"
	case !i.Direct && u.EscapedPath() != p.Prefix+i.Name:
		return "its agent gives the path of something else"
	}
	host := strings.ToLower(u.Hostname())
	if p.allows(host) {
		return ""
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case p.Local && (host == "localhost" || err == nil && addr.Unmap().IsLoopback()):
		return "" // without a key only this machine can be in the group
	case i.Direct:
		return fmt.Sprintf("its agent wants it to be called at %s (--direct); gossip { allow_direct %s } in the Caddyfile lets the hub do that", u.Host, host)
	case u.Scheme != "https":
		return fmt.Sprintf("its agent serves it over plain HTTP at %s; gossip { allow_direct %s } in the Caddyfile lets the hub call it there", u.Host, host)
	case err != nil || addr.Unmap() != from.Addr || !callable(from.Addr):
		return fmt.Sprintf("it is served at %s and its agent is at %s; gossip { allow_direct %s } in the Caddyfile lets the hub call it there",
			u.Host, from.Addr, host)
	case from.Unmet:
		return fmt.Sprintf("its agent says that it is at %s, but nothing has come to this hub from there, only from elsewhere; gossip { agents_from %s } in the Caddyfile lets the hub call it there",
			host, host)
	}
	return ""
}

// callable reports whether an agent can be at an address. The hub's own loopback is
// one: the agent must prove with its key that it is there.
func callable(a netip.Addr) bool {
	return a.Zone() == "" && (a.IsGlobalUnicast() || a.IsLoopback())
}

func (p Policy) allows(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		addr = addr.Unmap()
		return slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Contains(addr) })
	}
	return slices.Contains(p.Hosts, host)
}
