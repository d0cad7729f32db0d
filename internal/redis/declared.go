package redis

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
)

// keyName is the name of a key as a script writes it, key('s', 'hub', ARGV[1]): each part is a
// text or the number of an argument.
type keyName []keyPart

type keyPart struct {
	text     string
	argument int // from 1; 0 for a text
}

var (
	luaComments = regexp.MustCompile(`--[^\n]*`)
	// keyUses finds each use of key, which is a call unless it is another name's; a call has
	// arguments, and ends where they end unless a call is among them.
	keyUses  = regexp.MustCompile(`(?:^|[^\w.'])(function )?key\b(?:\(([^()]*)([()]))?`)
	literals = regexp.MustCompile(`^(?:'([\w:]*)'|(\d+)|ARGV\[(\d+)\])$`)
)

// declared returns the names of the keys that a script uses. all is false if it finds out some of
// them while it runs, as the key of the job that runs at an instance.
func declared(text string) (names []keyName, all bool) {
	seen := map[string]bool{}
	for _, use := range keyUses.FindAllStringSubmatch(luaComments.ReplaceAllString(text, ""), -1) {
		definition, arguments, end := use[1] != "", use[2], use[3]
		switch {
		case definition || seen[arguments]:
			continue
		case end != ")":
			return nil, false
		}
		seen[arguments] = true
		var name keyName
		for argument := range strings.SplitSeq(arguments, ",") {
			part := literals.FindStringSubmatch(strings.TrimSpace(argument))
			if part == nil {
				return nil, false
			}
			n, _ := strconv.Atoi(part[3]) // 0 without one
			name = append(name, keyPart{text: part[1] + part[2], argument: n})
		}
		names = append(names, name)
	}
	return names, true
}

// of returns the name of the key in a call with some arguments.
func (n keyName) of(db *DB, args []string) string {
	parts := make([]string, len(n))
	for i, part := range n {
		switch {
		case part.argument == 0:
			parts[i] = part.text
		case part.argument <= len(args):
			parts[i] = args[part.argument-1]
		}
	}
	return db.Key(parts...)
}

// DeclaresKeys reports whether all keys that the script uses are in KEYS.
func (s *Script) DeclaresKeys() bool {
	_, all := s.keys()
	return all
}

// directive is the first line of a script that finds keys while it runs.
func (s *Script) directive() string {
	if s.DeclaresKeys() {
		return ""
	}
	return engine.Undeclared
}

// keysOf returns the keys that a script declares in a call with some arguments.
func (s *Script) keysOf(db *DB, args []string) []string {
	names, _ := s.keys()
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = name.of(db, args)
	}
	return keys
}
