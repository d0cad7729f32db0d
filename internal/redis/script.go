package redis

import (
	"crypto/sha1" // #nosec G505 -- the name that Redis gives a script, not security
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"
)

//go:embed prelude.lua
var preludeLua string

//go:embed remember.lua
var rememberLua string

//go:embed journal.lua
var journalLua string

// Mode says what a script does to the data.
type Mode int

const (
	// ReadOnly scripts change nothing and may be sent any number of times.
	ReadOnly Mode = iota
	// Write scripts change something that may be lost when the process dies
	// within a second of it (progress, leases).
	Write
	// Durable scripts change something that must not be lost once it was
	// answered (accepts and ends): the embedded server's journal is synced
	// before Run returns. A Redis of its own follows its appendfsync.
	Durable
)

// Script is one Lua script. Its body is the inside of a function and returns
// a flat list of strings, the first of which says how it went; numbers are
// turned into strings with int(). It finds these names ready:
//
//	ARGV          the arguments of Run
//	key(...)      the name of a key, as DB.Key
//	now()         Redis's clock in milliseconds
//	write(...)    a command that changes something
//	redis.call    a command that reads
//	pack(...)     a list of strings in one, as Pack
//	int(n)        a whole number as text
//
// Expiry is written as PEXPIREAT, and messages to subscribers are
// redis.call('PUBLISH', ...), which changes nothing.
type Script struct {
	name     string
	mode     Mode
	source   source // for a server of its own
	embedded source // for the server inside the process
}

type source struct{ text, sha string }

// NewScript makes a script of Lua parts: libraries first, the body last.
// Name is for errors and logs.
func NewScript(name string, mode Mode, parts ...string) *Script {
	last := len(parts) - 1
	libraries, body := strings.Join(parts[:last], "\n"), parts[last]
	// A load error names a line of the whole text; libraries come after the
	// prelude, so that their locals may use it.
	assemble := func(prelude, ending string) source {
		text := prelude + "\n" + libraries + "\nlocal function main()\n" + body + "\nend\n" + ending
		sum := sha1.Sum([]byte(text)) // #nosec G401 -- see above
		return source{text: text, sha: hex.EncodeToString(sum[:])}
	}
	s := &Script{name: name, mode: mode}
	if mode == ReadOnly {
		s.source = assemble(preludeLua, "return main()\n")
		s.embedded = s.source
		return s
	}
	s.source = assemble(preludeLua, rememberLua)
	s.embedded = assemble(preludeLua+recordLua, journalLua)
	return s
}

// recordLua replaces write on the embedded server.
const recordLua = `
write = function(...)
  local reply = redis.call(...)
  redis.call('COMFYHUB.EFFECT', ...)
  return reply
end
`

// Name is the script's name.
func (s *Script) Name() string { return s.name }

// Pack frames strings of any bytes in one, so that no two lists give the same
// text. Scripts have the same function.
func Pack(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(strconv.Itoa(len(part)))
		b.WriteByte(':')
		b.WriteString(part)
	}
	return b.String()
}

// Unpack undoes Pack; ok is false for anything that Pack does not make.
func Unpack(packed string) (parts []string, ok bool) {
	for packed != "" {
		digits, rest, found := strings.Cut(packed, ":")
		n, err := strconv.Atoi(digits)
		if !found || err != nil || n < 0 || n > len(rest) || strconv.Itoa(n) != digits {
			return nil, false
		}
		parts, packed = append(parts, rest[:n]), rest[n:]
	}
	return parts, true
}
