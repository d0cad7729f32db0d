package gossip

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/hashicorp/memberlist"
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
}

// Event says that a member has come or gone.
type Event struct {
	Member Member
	// Left is true for a member that has gone or was found dead.
	Left bool

	farewell bool // it has said so itself
}

// ErrName says that a name cannot be used.
var ErrName = errors.New("a name has 1 to 64 letters, digits, dots, dashes and underscores")

// Names end up in paths, metrics and dashboards, and must fit the 512 bytes
// that the group carries for each member.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckName returns [ErrName] for a name that cannot be used.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q: %w", name, ErrName)
	}
	return nil
}

// metaJSON is the version byte of the one encoding so far.
const metaJSON = 1

const maxVersion = 64

// meta is what the group carries for each member.
type meta struct {
	Role    Role   `json:"r"`
	Name    string `json:"n"`
	Boot    int64  `json:"b"`
	Version string `json:"v,omitempty"`
}

// encode writes the meta. It must fit memberlist's limit, beyond which it
// panics: CheckName bounds the name, and the version is left out if need be.
func (m meta) encode() []byte {
	body, err := json.Marshal(m)
	if err != nil { // strings and an integer only
		panic(fmt.Sprintf("gossip: encoding meta: %v", err))
	}
	if len(body)+1 > memberlist.MetaMaxSize && m.Version != "" {
		m.Version = ""
		return m.encode()
	}
	return append([]byte{metaJSON}, body...)
}

func decodeMeta(data []byte) (meta, error) {
	if len(data) == 0 || data[0] != metaJSON {
		return meta{}, errors.New("not a member of ComfyHub, or of a newer kind")
	}
	var m meta
	if err := json.Unmarshal(data[1:], &m); err != nil {
		return meta{}, fmt.Errorf("reading a member's description: %w", err)
	}
	if m.Role != RoleHub && m.Role != RoleAgent {
		return meta{}, fmt.Errorf("unknown role %q", m.Role)
	}
	return m, CheckName(m.Name)
}

// memberOf reads a node; ok is false for one that is no member of ours.
func memberOf(n *memberlist.Node) (m Member, ok bool) {
	d, err := decodeMeta(n.Meta)
	if err != nil {
		return Member{}, false
	}
	return Member{Role: d.Role, Name: d.Name, Boot: d.Boot, Version: d.Version, Addr: n.Address()}, true
}
