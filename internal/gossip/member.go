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
	// Name is chosen by the operator. Nothing keeps two members from using
	// the same: Boot tells them apart.
	Name string
	// Boot is when the process started, in milliseconds since the Unix epoch.
	Boot int64
	// Version is of the program.
	Version string
	// Addr is the host:port at which the member can be reached by gossip.
	Addr string
	// Key is the public key of the agent's [Identity]; empty for hubs, and for
	// agents that are older than that.
	Key string
}

// Event says that a member has come or gone.
type Event struct {
	Member Member
	// Left is true for a member that has gone or was found dead.
	Left bool

	farewell bool // it has said so itself
}

// ErrName says that a name cannot be used.
var ErrName = fleet.ErrName

// CheckName returns [ErrName] for a name that cannot be used. It must fit the
// 512 bytes that the group carries for each member.
func CheckName(name string) error { return fleet.CheckName(name) }

// metaJSON is the version byte of the one encoding so far.
const metaJSON = 1

const maxVersion = 64

// protocolSigned is the first version of the protocol in which agents sign what
// they say. Hubs before it know neither envelopes nor identities.
const protocolSigned = 1

// meta is what the group carries for each member.
type meta struct {
	Role     Role   `json:"r"`
	Name     string `json:"n"`
	Boot     int64  `json:"b"`
	Version  string `json:"v,omitempty"`
	Protocol int    `json:"p,omitempty"`
	// Addr, Key and Signature are an agent's: where it is, who it is, and the
	// proof that it has said all of this itself.
	Addr      string `json:"a,omitempty"`
	Key       string `json:"k,omitempty"`
	Signature string `json:"s,omitempty"`
}

// node is the member's name to memberlist, one of its own for each process:
// memberlist holds on to the address of a name, and would refuse a member that
// restarts at another port.
func (m meta) node() string {
	return string(m.Role) + "/" + m.Name + "/" + strconv.FormatInt(m.Boot, 36)
}

// signatureRoom is what key and signature add to a description.
const signatureRoom = len(`,"a":"","k":"","s":""`) + 64 + 43 + 86

// fit leaves out what is optional if the description would be too long. It
// must come before signing.
func (m meta) fit() meta {
	body, err := json.Marshal(m)
	if err == nil && len(body)+1+signatureRoom > memberlist.MetaMaxSize {
		m.Version = ""
	}
	return m
}

// encode writes the meta. It must fit memberlist's limit, beyond which it
// panics: CheckName bounds the name, and fit sees to the version.
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
	return Member{Role: m.Role, Name: m.Name, Boot: m.Boot, Version: m.Version, Addr: addr, Key: m.Key}
}

// memberOf reads a node; ok is false for one that is no member of ours.
func memberOf(n *memberlist.Node) (m Member, ok bool) {
	d, err := decodeMeta(n.Meta)
	if err != nil {
		return Member{}, false
	}
	return d.member(n.Address()), true
}
