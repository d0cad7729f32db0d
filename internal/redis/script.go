package redis

import (
	"crypto/sha1" // #nosec G505 -- Redis identifies scripts by it; not for security
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
)

//go:embed prelude.lua
var preludeLua string

//go:embed remember.lua
var rememberLua string

// Mode says what a script does to the data.
type Mode int

const (
	// ReadOnly scripts change nothing and may be sent any number of times.
	ReadOnly Mode = iota
	// Write scripts make changes that may be lost if the process dies within a
	// second (progress, leases).
	Write
	// Durable scripts make changes that must not be lost once they were confirmed
	// (accepts and ends): the journal of the embedded server is synced before Run
	// returns. An external Redis follows its appendfsync.
	Durable
	// Replicated scripts are Durable, and the promise that was made with them must
	// outlive a failover: see Options.Replicas.
	Replicated
)

// lua tells the prelude whether a script may write.
func (m Mode) lua() string {
	return "local WRITES = " + strconv.FormatBool(m != ReadOnly) + "\n"
}

// Script is one Lua script. Its text is the body of a function that returns a flat
// list of strings, the first of which is a result code; numbers are converted with
// int(). These names are predefined:
//
//	ARGV          the arguments of Run
//	key(...)      the name of a key, as DB.Key
//	now()         the time in milliseconds: Redis's clock, but never set back
//	expire(k, t)  when a key ends, by now()
//	write(...)    a command that changes something
//	redis.call    a command that reads
//	pack(...)     a list of strings in one, as Pack
//	int(n)        a whole number as text
//
// Expiry is written as PEXPIREAT, by expire. Messages to subscribers are redis.call('PUBLISH',
// ...), which changes nothing.
//
// All keys that a script uses are in KEYS if each name is made of texts and ARGV[n] only. Scripts
// that read in one key which others there are cannot say so before; their first line tells
// servers that want to know.
type Script struct {
	name string
	mode Mode
	// keys returns those that are in KEYS, and whether the script declares its keys.
	keys     func() ([]keyName, bool)
	source   func() source // for an external server
	embedded func() (*engine.Script, error)
}

type source struct{ text, sha string }

// NewScript returns a script made of Lua parts: libraries first, the body last. Of the
// libraries it has what the body uses; see pruned for how they must be written. The name
// is used in errors and logs.
func NewScript(name string, mode Mode, parts ...string) *Script {
	last := len(parts) - 1
	libraries, body := parts[:last], parts[last]
	main := "local function main()\n" + body + "\nend\n"
	ending := "return main()\n"
	s := &Script{name: name, mode: mode}
	s.keys = sync.OnceValues(func() ([]keyName, bool) {
		return declared(pruned(body, append([]string{preludeLua}, libraries...)...) + body)
	})
	s.source = sync.OnceValue(func() source {
		ending := ending
		if mode != ReadOnly {
			ending = rememberLua
		}
		// Libraries come after the prelude, so that their locals may use it.
		text := s.directive() + pruned(body+"\n"+ending, append([]string{mode.lua(), preludeLua}, libraries...)...) + main + ending
		sum := sha1.Sum([]byte(text)) // #nosec G401 -- see above
		return source{text: text, sha: hex.EncodeToString(sum[:])}
	})
	s.embedded = sync.OnceValues(func() (*engine.Script, error) {
		return engine.Compile(name, s.directive()+mode.lua()+preludeLua+embeddedLua+pruned(body, libraries...)+main+ending)
	})
	return s
}

// embeddedLua replaces some of the prelude in this process: what a script writes goes to
// the journal, and what it calls most often is Go.
const embeddedLua = "\nwrite, key, pack, int = redis.write, redis.key, redis.pack, redis.int\n"

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// Pack encodes strings of any bytes in one string, so that no two lists produce the
// same text. Scripts have the same function.
func Pack(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(strconv.Itoa(len(part)))
		b.WriteByte(':')
		b.WriteString(part)
	}
	return b.String()
}

// Unpack undoes Pack; ok is false for anything that Pack does not produce.
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
