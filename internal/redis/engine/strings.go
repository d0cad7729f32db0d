package engine

import (
	"errors"
	"math"
	"path"
	"slices"
	"strings"
)

func del(k *keyspace, args []string) (any, error) {
	n := int64(0)
	for _, key := range args[1:] {
		if k.peek(key) != nil {
			k.remove(key)
			n++
		}
	}
	return n, nil
}

func exists(k *keyspace, args []string) (any, error) {
	n := int64(0)
	for _, key := range args[1:] {
		n += answer(k.peek(key) != nil)
	}
	return n, nil
}

func typeOf(k *keyspace, args []string) (any, error) {
	if v := k.peek(args[1]); v != nil {
		return status(v.kind), nil
	}
	return status("none"), nil
}

// keysLike looks through all keys: it is for tests.
func keysLike(k *keyspace, args []string) (any, error) {
	// path.Match is Redis's pattern but for the slash.
	pattern := strings.ReplaceAll(args[1], "/", "\x00")
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, errSyntax
	}
	out := []any{}
	now := k.now().UnixMilli()
	k.keys.Scan(func(key string, v *value) bool {
		if match, _ := path.Match(pattern, strings.ReplaceAll(key, "/", "\x00")); match && (v.expires == 0 || v.expires > now) {
			out = append(out, key)
		}
		return true
	})
	return out, nil
}

func pttl(k *keyspace, args []string) (any, error) {
	switch v := k.peek(args[1]); {
	case v == nil:
		return int64(-2), nil
	case v.expires == 0:
		return int64(-1), nil
	default:
		return v.expires - k.now().UnixMilli(), nil
	}
}

func pexpireat(k *keyspace, args []string) (any, error) {
	at, err := number(args[2])
	if err != nil {
		return nil, err
	}
	return answer(k.expireAt(args[1], max(at, 1))), nil
}

func dbsize(k *keyspace, _ []string) (any, error) { return int64(k.keys.Len()), nil }

func flushall(k *keyspace, _ []string) (any, error) {
	k.keys.Clear()
	k.deadlines = newSortedSet()
	return ok, nil
}

func get(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindString)
	if v == nil || err != nil {
		return nil, err
	}
	return v.text, nil
}

func mget(k *keyspace, args []string) (any, error) {
	out := make([]any, 0, len(args)-1)
	for _, key := range args[1:] {
		if v := k.peek(key); v != nil && v.kind == kindString {
			out = append(out, v.text)
		} else {
			out = append(out, nil)
		}
	}
	return out, nil
}

// set does SET with the options NX and XX. A time to live is set by PEXPIREAT,
// which the journal can repeat.
func set(k *keyspace, args []string) (any, error) {
	options, lifetime, err := withoutPX(args[3:])
	if err != nil {
		return nil, err
	}
	for _, option := range options {
		had := k.peek(args[1]) != nil
		switch strings.ToUpper(option) {
		case "NX":
			if had {
				return nil, nil
			}
		case "XX":
			if !had {
				return nil, nil
			}
		default:
			return nil, errSyntax
		}
	}
	k.set(args[1], k.store(args[2], 2))
	if lifetime > 0 {
		k.expireAt(args[1], k.now().UnixMilli()+lifetime)
	}
	return ok, nil
}

// withoutPX takes the lifetime in milliseconds out of SET's options, 0 if there is none.
func withoutPX(options []string) (rest []string, lifetime int64, err error) {
	at := slices.IndexFunc(options, func(o string) bool { return strings.EqualFold(o, "PX") })
	if at < 0 || at+1 == len(options) {
		return options, 0, nil
	}
	if lifetime, err = number(options[at+1]); err == nil && lifetime <= 0 {
		err = errors.New("ERR invalid expire time in 'set' command")
	}
	return slices.Concat(options[:at], options[at+2:]), lifetime, err
}

func strlen(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindString)
	if v == nil || err != nil {
		return int64(0), err
	}
	return int64(v.text.size()), nil
}

func incr(k *keyspace, args []string) (any, error) { return add(k, args[1], "1") }

func incrby(k *keyspace, args []string) (any, error) { return add(k, args[1], args[2]) }

func add(k *keyspace, key, by string) (any, error) {
	if _, err := number(by); err != nil {
		return nil, err
	}
	v, err := k.get(key, kindString)
	if err != nil {
		return nil, err
	}
	old := "0"
	if v != nil {
		old = v.text.text
	}
	sum, text, err := sum(old, by)
	if err != nil {
		return nil, err
	}
	if v, err = k.change(key, kindString); err != nil {
		return nil, err
	}
	v.text = datum{text: text}
	return sum, nil
}

// sum adds two numbers and gives the sum as text, too.
func sum(a, b string) (int64, string, error) {
	x, err := number(a)
	if err != nil {
		return 0, "", err
	}
	y, err := number(b)
	if err != nil {
		return 0, "", err
	}
	if y > 0 && x > math.MaxInt64-y || y < 0 && x < math.MinInt64-y {
		return 0, "", errors.New("ERR increment or decrement would overflow")
	}
	return x + y, decimalInt(x + y), nil
}
