package gossip

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/hashicorp/memberlist"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

// Role is what a member does.
type Role string

// The roles.
const (
	RoleHub   Role = "hub"
	RoleAgent Role = "agent"
)

// Member is one process in the group.
type Member struct {
	Role Role
	// Name is chosen by the operator. Two members may use the same name: Boot tells
	// them apart.
	Name string
	// Boot is when the process started, in milliseconds since the Unix epoch.
	Boot int64
	// Version of the member's program.
	Version string
	// Addr is the host:port at which gossip reaches the member.
	Addr string
	// Key is the public key of the agent's [Identity]; empty for hubs, and for
	// agents that are too old to have one.
	Key string
	// TrustsGroup is true for an agent that is too old to tell hubs from others who have
	// the gossip key.
	TrustsGroup bool
	// CutOff is true for a hub that says that it does not reach the queue.
	CutOff bool
}

// Event reports that a member has joined or left.
type Event struct {
	Member Member
	// Left is true if the member has left or was found dead.
	Left bool

	// Announced is true if the member has said itself that it leaves.
	Announced bool
}

// ErrName is returned for a name that cannot be used.
var ErrName = fleet.ErrName

// CheckName returns [ErrName] for a name that cannot be used. It must fit into the
// 512 bytes that the group carries for each member.
func CheckName(name string) error { return fleet.CheckName(name) }

// metaJSON is the version byte of the only encoding so far.
const metaJSON = 1

const maxVersion = 64

// protocolSigned is the first protocol version in which agents sign their messages.
// Earlier hubs know neither envelopes nor identities.
const protocolSigned = 1

// protocolHubs is the first in which agents know hubs by their [Authority].
const protocolHubs = 2

// meta is what the group carries for each member.
type meta struct {
	Role     Role   `json:"r"`
	Name     string `json:"n"`
	Boot     int64  `json:"b"`
	Version  string `json:"v,omitempty"`
	Protocol int    `json:"p,omitempty"`
	// Addr, Key and Signature are set by agents: where the agent is, who it is, and
	// the proof that it said so itself.
	Addr      string `json:"a,omitempty"`
	Key       string `json:"k,omitempty"`
	Signature string `json:"s,omitempty"`
	// CutOff is set by hubs that do not reach the queue.
	CutOff bool `json:"c,omitempty"`
}

// node returns the member's name in memberlist, which is unique per process:
// memberlist ties a name to its address, and would refuse a member that restarts at
// another port.
func (m meta) node() string {
	return string(m.Role) + "/" + m.Name + "/" + strconv.FormatInt(m.Boot, 36)
}

// signatureRoom is what key and signature add to a description.
const signatureRoom = len(`,"a":"","k":"","s":""`) + 64 + 43 + 86

// fit drops optional fields if the description would be too long. Call it before
// signing.
func (m meta) fit() meta {
	body, err := json.Marshal(m)
	if err == nil && len(body)+1+signatureRoom > memberlist.MetaMaxSize {
		m.Version = ""
	}
	return m
}

// encode encodes the meta. memberlist panics if it exceeds its limit: CheckName
// bounds the name, and fit drops the version.
func (m meta) encode() []byte {
	body, err := json.Marshal(m)
	if err != nil { // strings and an integer only
		panic(fmt.Sprintf("gossip: encoding meta: %v", err))
	}
	return append([]byte{metaJSON}, body...)
}

func decodeMeta(data []byte) (meta, error) {
	if len(data) == 0 || data[0] != metaJSON {
		return meta{}, errors.New("not a member of ComfyHub, or of a newer kind")
	}
	var m meta
	if len(data) > memberlist.MetaMaxSize {
		return meta{}, errors.New("a description that is too long")
	}
	if err := json.Unmarshal(data[1:], &m); err != nil {
		return meta{}, fmt.Errorf("reading a member's description: %w", err)
	}
	if m.Role != RoleHub && m.Role != RoleAgent {
		return meta{}, fmt.Errorf("unknown role %q", m.Role)
	}
	return m, CheckName(m.Name)
}

func (m meta) member(addr string) Member {
	return Member{Role: m.Role, Name: m.Name, Boot: m.Boot, Version: m.Version, Addr: addr, Key: m.Key, TrustsGroup: m.Role == RoleAgent && m.Protocol < protocolHubs, CutOff: m.CutOff}
}

// memberOf decodes a node; ok is false if it is not a member of ComfyHub.
func memberOf(n *memberlist.Node) (m Member, ok bool) {
	d, err := decodeMeta(n.Meta)
	if err != nil {
		return Member{}, false
	}
	return d.member(n.Address()), true
}
