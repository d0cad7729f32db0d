package engine

import (
	"errors"
	"strconv"
	"strings"
)

func decimalInt(n int64) string { return strconv.FormatInt(n, 10) }

func hget(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindHash)
	if v == nil || err != nil {
		return nil, err
	}
	if d, found := v.hash.Get(args[2]); found {
		return d, nil
	}
	return nil, nil
}

func hmget(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindHash)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(args)-2)
	if v == nil {
		return out, nil
	}
	for i, field := range args[2:] {
		if d, found := v.hash.Get(field); found {
			out[i] = d
		}
	}
	return out, nil
}

func hgetall(k *keyspace, args []string) (any, error) { return hashOf(k, args[1], true, true) }
func hkeys(k *keyspace, args []string) (any, error)   { return hashOf(k, args[1], true, false) }
func hvals(k *keyspace, args []string) (any, error)   { return hashOf(k, args[1], false, true) }

func hashOf(k *keyspace, key string, fields, values bool) (any, error) {
	v, err := k.get(key, kindHash)
	out := []any{}
	if v == nil || err != nil {
		return out, err
	}
	v.hash.Scan(func(field string, d datum) bool {
		if fields {
			out = append(out, field)
		}
		if values {
			out = append(out, d)
		}
		return true
	})
	return out, nil
}

func hset(k *keyspace, args []string) (any, error) {
	if len(args)%2 != 0 {
		return nil, errors.New("ERR wrong number of arguments for 'hset' command")
	}
	v, err := k.change(args[1], kindHash)
	if err != nil {
		return nil, err
	}
	added := int64(0)
	for i := 2; i < len(args); i += 2 {
		_, had := v.hash.Set(args[i], k.store(args[i+1], i+1))
		added += answer(!had)
	}
	return added, nil
}

func hdel(k *keyspace, args []string) (any, error) {
	v, err := k.existing(args[1], kindHash)
	if v == nil || err != nil {
		return int64(0), err
	}
	n := int64(0)
	for _, field := range args[2:] {
		_, had := v.hash.Delete(field)
		n += answer(had)
	}
	k.dropIfEmpty(args[1], v)
	return n, nil
}

func hexists(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindHash)
	if v == nil || err != nil {
		return int64(0), err
	}
	_, found := v.hash.Get(args[2])
	return answer(found), nil
}

func hlen(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindHash)
	if v == nil || err != nil {
		return int64(0), err
	}
	return int64(v.hash.Len()), nil
}

func hincrby(k *keyspace, args []string) (any, error) {
	if _, err := number(args[3]); err != nil {
		return nil, err
	}
	v, err := k.get(args[1], kindHash)
	if err != nil {
		return nil, err
	}
	old := "0"
	if v != nil {
		if d, found := v.hash.Get(args[2]); found {
			old = d.text
		}
	}
	if _, err := number(old); err != nil {
		return nil, errHashInt
	}
	n, text, err := sum(old, args[3])
	if err != nil {
		return nil, err
	}
	if v, err = k.change(args[1], kindHash); err != nil {
		return nil, err
	}
	v.hash.Set(args[2], datum{text: text})
	return n, nil
}

// hscan gives the whole hash at once, as Redis does with small ones.
func hscan(k *keyspace, args []string) (any, error) {
	if err := onlyCount(args[3:]); err != nil {
		return nil, err
	}
	all, err := hashOf(k, args[1], true, true)
	if err != nil {
		return nil, err
	}
	return []any{"0", all}, nil
}

// onlyCount refuses options of a scan other than COUNT.
func onlyCount(options []string) error {
	if len(options) == 0 || len(options) == 2 && strings.EqualFold(options[0], "COUNT") {
		return nil
	}
	return errSyntax
}
