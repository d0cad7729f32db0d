package gossip

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

var (
	// ErrUnsigned means that an agent's message has no signature, because the agent
	// is too old to sign.
	ErrUnsigned = errors.New("not signed: the agent is older than this hub, upgrade it")
	// ErrForged means that a message is not from the agent that it names.
	ErrForged = errors.New("the signature is not that of the sender")
)

// What an identity signs. Each prefix serves one purpose, so that a signature made
// for one is worthless for another.
const (
	signsMember = "comfyhub member v1"
	signsReport = "comfyhub report v1"
	signsLeave  = "comfyhub farewell v1"
)

// statement encodes texts so that no two lists produce the same bytes.
func statement(purpose string, parts ...string) []byte {
	b := append([]byte(purpose), 0)
	for _, p := range parts {
		b = strconv.AppendInt(b, int64(len(p)), 10)
		b = append(append(b, ':'), p...)
	}
	return b
}

// An envelope carries an agent's message together with the agent's description, so
// that a hub need not have heard of the agent before, nor trust whoever delivered
// the message:
//
//	byte     messageReport, messageLeave ...
//	uint16   size of the description
//	bytes    the sender's description, signed by itself
//	64 bytes signature of the rest
//	bytes    the rest
const envelopeHead = 1 + 2

// seal signs a message of a kind.
func (i Identity) seal(kind byte, description, body []byte) []byte {
	message := make([]byte, 0, envelopeHead+len(description)+ed25519.SignatureSize+len(body))
	message = binary.BigEndian.AppendUint16(append(message, kind), uint16(len(description)))
	message = append(message, description...)
	message = append(message, ed25519.Sign(i.private, statement(purposeOf(kind), string(description), string(body)))...)
	return append(message, body...)
}

func purposeOf(kind byte) string {
	if kind == messageSignedLeave {
		return signsLeave
	}
	return signsReport
}

// proven are descriptions whose own signatures were found right, decoded. An agent sends
// the same one with each report. The zero value is empty; one goroutine uses it.
type proven map[string]meta

// maxProven bounds the descriptions that are remembered, of some 400 bytes each.
const maxProven = 4096

// of decodes a description and checks its signature.
func (p *proven) of(description []byte) (meta, error) {
	if m, ok := (*p)[string(description)]; ok {
		return m, nil
	}
	m, err := decodeMeta(description)
	if err != nil {
		return meta{}, err
	}
	if err := m.verify(); err != nil {
		return m, err
	}
	if *p == nil || len(*p) >= maxProven {
		*p = proven{}
	}
	(*p)[string(description)] = m
	return m, nil
}

// unseal checks a sealed message and returns its sender and content.
func unseal(message []byte, known *proven) (meta, []byte, error) {
	if len(message) < envelopeHead {
		return meta{}, nil, fmt.Errorf("%w: cut off", ErrForged)
	}
	size := int(binary.BigEndian.Uint16(message[1:]))
	rest := message[envelopeHead:]
	if len(rest) < size+ed25519.SignatureSize {
		return meta{}, nil, fmt.Errorf("%w: cut off", ErrForged)
	}
	description, signature, body := rest[:size], rest[size:size+ed25519.SignatureSize], rest[size+ed25519.SignatureSize:]
	from, err := known.of(description)
	if err != nil {
		return from, nil, err
	}
	key, err := parseKey(from.Key)
	if err != nil || !ed25519.Verify(key, statement(purposeOf(message[0]), string(description), string(body)), signature) {
		return from, nil, ErrForged
	}
	return from, body, nil
}

// sign signs the description with the identity.
func (m meta) sign(i Identity) meta {
	m.Key = i.Key()
	m.Signature = base64.RawURLEncoding.EncodeToString(ed25519.Sign(i.private, m.statement()))
	return m
}

func (m meta) statement() []byte {
	return statement(signsMember, string(m.Role), m.Name, strconv.FormatInt(m.Boot, 10), m.Version, strconv.Itoa(m.Protocol), m.Addr, m.Key)
}

// verify checks that a description was signed with the key in it.
func (m meta) verify() error {
	if m.Key == "" {
		return ErrUnsigned
	}
	key, err := parseKey(m.Key)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForged, err)
	}
	signature, err := base64.RawURLEncoding.DecodeString(m.Signature)
	if err != nil || !ed25519.Verify(key, m.statement(), signature) {
		return ErrForged
	}
	return nil
}
