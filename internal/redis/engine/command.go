package engine

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A reply is what Redis answers to a command:
//
//	nil      nothing there
//	int64    a number
//	string   a string
//	datum    a string that may be in the file
//	status   a word such as OK
//	[]any    a list of these
type status string

const ok status = "OK"

// Errors in Redis's words, since callers look for them.
var (
	errWrongType = errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")
	errSyntax    = errors.New("ERR syntax error")
	errNotInt    = errors.New("ERR value is not an integer or out of range")
	errNotFloat  = errors.New("ERR value is not a valid float")
	errHashInt   = errors.New("ERR hash value is not an integer")
)

// command is one of Redis's.
type command struct {
	// least is the smallest number of arguments, the name included; exact says
	// that it is the largest, too.
	least int
	exact bool
	// write says that it changes something.
	write bool
	do    func(k *keyspace, args []string) (any, error)
}

// commands are all that scripts and the hub use, and what tests look with.
// Others are errors.
var commands = map[string]command{
	"DEL":       {least: 2, write: true, do: del},
	"EXISTS":    {least: 2, do: exists},
	"TYPE":      {least: 2, exact: true, do: typeOf},
	"KEYS":      {least: 2, exact: true, do: keysLike},
	"PTTL":      {least: 2, exact: true, do: pttl},
	"PEXPIREAT": {least: 3, exact: true, write: true, do: pexpireat},
	"DBSIZE":    {least: 1, exact: true, do: dbsize},
	"FLUSHALL":  {least: 1, write: true, do: flushall},

	"GET":    {least: 2, exact: true, do: get},
	"MGET":   {least: 2, do: mget},
	"SET":    {least: 3, write: true, do: set},
	"STRLEN": {least: 2, exact: true, do: strlen},
	"INCR":   {least: 2, exact: true, write: true, do: incr},
	"INCRBY": {least: 3, exact: true, write: true, do: incrby},

	"HGET":    {least: 3, exact: true, do: hget},
	"HMGET":   {least: 3, do: hmget},
	"HGETALL": {least: 2, exact: true, do: hgetall},
	"HKEYS":   {least: 2, exact: true, do: hkeys},
	"HVALS":   {least: 2, exact: true, do: hvals},
	"HSET":    {least: 4, write: true, do: hset},
	"HDEL":    {least: 3, write: true, do: hdel},
	"HEXISTS": {least: 3, exact: true, do: hexists},
	"HLEN":    {least: 2, exact: true, do: hlen},
	"HINCRBY": {least: 4, exact: true, write: true, do: hincrby},
	"HSCAN":   {least: 3, do: hscan},

	"RPUSH":  {least: 3, write: true, do: rpush},
	"LPUSH":  {least: 3, write: true, do: lpush},
	"LRANGE": {least: 4, exact: true, do: lrange},
	"LINDEX": {least: 3, exact: true, do: lindex},
	"LTRIM":  {least: 4, exact: true, write: true, do: ltrim},
	"LLEN":   {least: 2, exact: true, do: llen},

	"SADD":      {least: 3, write: true, do: sadd},
	"SREM":      {least: 3, write: true, do: srem},
	"SMEMBERS":  {least: 2, exact: true, do: smembers},
	"SISMEMBER": {least: 3, exact: true, do: sismember},
	"SCARD":     {least: 2, exact: true, do: scard},

	"ZADD":             {least: 4, write: true, do: zadd},
	"ZREM":             {least: 3, write: true, do: zrem},
	"ZINCRBY":          {least: 4, exact: true, write: true, do: zincrby},
	"ZREMRANGEBYSCORE": {least: 4, exact: true, write: true, do: zremrangebyscore},
	"ZREMRANGEBYRANK":  {least: 4, exact: true, write: true, do: zremrangebyrank},
	"ZSCORE":           {least: 3, exact: true, do: zscore},
	"ZRANK":            {least: 3, exact: true, do: zrank},
	"ZCARD":            {least: 2, exact: true, do: zcard},
	"ZCOUNT":           {least: 4, exact: true, do: zcount},
	"ZLEXCOUNT":        {least: 4, exact: true, do: zlexcount},
	"ZRANGE":           {least: 4, do: zrange},
	"ZREVRANGE":        {least: 4, do: zrevrange},
	"ZRANGEBYSCORE":    {least: 4, do: zrangebyscore},
	"ZSCAN":            {least: 3, do: zscan},
}

// find gives the command of a list of arguments.
func find(args []string) (command, error) {
	name := strings.ToUpper(args[0])
	c, known := commands[name]
	switch {
	case !known:
		return c, fmt.Errorf("ERR unknown command '%.40s'", args[0])
	case len(args) < c.least, c.exact && len(args) > c.least:
		return c, fmt.Errorf("ERR wrong number of arguments for '%s' command", strings.ToLower(name))
	}
	return c, nil
}

// keysOf returns the keys that a command of a script uses.
func keysOf(args []string) []string {
	switch strings.ToUpper(args[0]) {
	case "DEL", "EXISTS", "MGET":
		return args[1:]
	case "DBSIZE", "FLUSHALL", "INFO", "KEYS", "PUBLISH", "TIME":
		return nil
	}
	return args[1:min(len(args), 2)]
}

// number reads a whole number as Redis does: no plus sign, no leading zero.
func number(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return 0, errNotInt
	}
	return n, nil
}

// decimal reads a score.
func decimal(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(f) || strings.ContainsAny(text, "_xXpP") {
		return 0, errNotFloat
	}
	return f, nil
}

// decimalText writes a score.
func decimalText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == 0 && math.Signbit(f):
		return "-0"
	case f == math.Trunc(f) && math.Abs(f) < 1<<62:
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// span is a range of indexes, both ends included; negative ones count from the
// end.
type span struct{ first, last int64 }

func readSpan(first, last string) (s span, err error) {
	if s.first, err = number(first); err == nil {
		s.last, err = number(last)
	}
	return s, err
}

// of gives the range in a list of a length; from > to if there is nothing in it.
func (s span) of(length int) (from, to int) {
	n := int64(length)
	a, b := s.first, s.last
	if a < 0 {
		a = max(a+n, 0)
	}
	if b < 0 {
		b += n
	}
	b = min(b, n-1)
	if a > b || a >= n {
		return 1, 0
	}
	return int(a), int(b)
}

// scores reads the two ends of a range of scores.
func scores(low, high string) (r scoreRange, err error) {
	if r.min, r.minOpen, err = bound(low); err == nil {
		r.max, r.maxOpen, err = bound(high)
	}
	return r, err
}

func bound(text string) (f float64, open bool, err error) {
	if rest, found := strings.CutPrefix(text, "("); found {
		text, open = rest, true
	}
	if text == "" {
		return 0, open, nil // as strtod reads it
	}
	if f, err = decimal(text); err != nil {
		return 0, false, errors.New("ERR min or max is not a float")
	}
	return f, open, nil
}

// answer turns a truth into Redis's 1 and 0.
func answer(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
