package engine

import (
	"errors"
	"math"
	"slices"
	"strings"
)

// zadd does ZADD with the options NX, XX, GT, LT and CH.
func zadd(k *keyspace, args []string) (any, error) {
	var nx, xx, gt, lt, ch bool
	rest := args[2:]
options:
	for len(rest) > 0 {
		switch strings.ToUpper(rest[0]) {
		case "NX":
			nx = true
		case "XX":
			xx = true
		case "GT":
			gt = true
		case "LT":
			lt = true
		case "CH":
			ch = true
		default:
			break options
		}
		rest = rest[1:]
	}
	switch {
	case len(rest) == 0, len(rest)%2 != 0:
		return nil, errSyntax
	case nx && xx:
		return nil, errors.New("ERR XX and NX options at the same time are not compatible")
	case gt && lt, nx && (gt || lt):
		return nil, errors.New("ERR GT, LT, and/or NX options at the same time are not compatible")
	}
	given := make([]float64, 0, len(rest)/2)
	for i := 0; i < len(rest); i += 2 {
		score, err := decimal(rest[i])
		if err != nil {
			return nil, err
		}
		given = append(given, score)
	}
	v, err := k.change(args[1], kindZset)
	if err != nil {
		return nil, err
	}
	defer func() { k.dropIfEmpty(args[1], v) }() // XX may have made an empty one
	added, changed := int64(0), int64(0)
	for i, score := range given {
		member := rest[2*i+1]
		old, had := v.zset.score(member)
		if had && (nx || gt && score <= old || lt && score >= old) || !had && xx {
			continue
		}
		v.zset.put(member, score)
		added += answer(!had)
		changed += answer(!had || old != score)
	}
	if ch {
		return changed, nil
	}
	return added, nil
}

func zrem(k *keyspace, args []string) (any, error) {
	v, err := k.existing(args[1], kindZset)
	if v == nil || err != nil {
		return int64(0), err
	}
	n := int64(0)
	for _, member := range args[2:] {
		n += answer(v.zset.remove(member))
	}
	k.dropIfEmpty(args[1], v)
	return n, nil
}

func zincrby(k *keyspace, args []string) (any, error) {
	by, err := decimal(args[2])
	if err != nil {
		return nil, err
	}
	v, err := k.get(args[1], kindZset)
	if err != nil {
		return nil, err
	}
	old := 0.0
	if v != nil {
		old, _ = v.zset.score(args[3])
	}
	score := old + by
	if math.IsNaN(score) {
		return nil, errors.New("ERR resulting score is not a number (NaN)")
	}
	if v, err = k.change(args[1], kindZset); err != nil {
		return nil, err
	}
	v.zset.put(args[3], score)
	return decimalText(score), nil
}

func zremrangebyscore(k *keyspace, args []string) (any, error) {
	r, err := scores(args[2], args[3])
	if err != nil {
		return nil, err
	}
	return removeFrom(k, args[1], func(z *sortedSet) []scored { return z.between(r, 0, -1) })
}

func zremrangebyrank(k *keyspace, args []string) (any, error) {
	which, err := readSpan(args[2], args[3])
	if err != nil {
		return nil, err
	}
	return removeFrom(k, args[1], func(z *sortedSet) []scored { return z.slice(which.of(z.len())) })
}

func removeFrom(k *keyspace, key string, which func(*sortedSet) []scored) (any, error) {
	v, err := k.existing(key, kindZset)
	if v == nil || err != nil {
		return int64(0), err
	}
	items := which(v.zset)
	for _, item := range items {
		v.zset.remove(item.member)
	}
	k.dropIfEmpty(key, v)
	return int64(len(items)), nil
}

func zscore(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindZset)
	if v == nil || err != nil {
		return nil, err
	}
	if score, found := v.zset.score(args[2]); found {
		return decimalText(score), nil
	}
	return nil, nil
}

func zrank(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindZset)
	if v == nil || err != nil {
		return nil, err
	}
	if rank, found := v.zset.rank(args[2]); found {
		return int64(rank), nil
	}
	return nil, nil
}

func zcard(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindZset)
	if v == nil || err != nil {
		return int64(0), err
	}
	return int64(v.zset.len()), nil
}

func zcount(k *keyspace, args []string) (any, error) {
	r, err := scores(args[2], args[3])
	if err != nil {
		return nil, err
	}
	v, err := k.get(args[1], kindZset)
	if v == nil || err != nil {
		return int64(0), err
	}
	return int64(len(v.zset.between(r, 0, -1))), nil
}

// zlexcount counts the members in a range of members. All must have one score, as in Redis.
func zlexcount(k *keyspace, args []string) (any, error) {
	// What comes right behind a member is that member with a zero byte.
	from, err := lexBound(args[2], "(")
	if err != nil {
		return nil, err
	}
	to, err := lexBound(args[3], "[")
	if err != nil {
		return nil, err
	}
	v, err := k.get(args[1], kindZset)
	if v == nil || err != nil {
		return int64(0), err
	}
	return int64(max(to(v.zset)-from(v.zset), 0)), nil
}

// lexBound reads an end of a range of members: "[member", "(member", "-" or "+". It returns
// what counts the members before it; behind is the kind of end that counts itself, too.
func lexBound(text, behind string) (func(*sortedSet) int, error) {
	switch {
	case text == "-":
		return func(*sortedSet) int { return 0 }, nil
	case text == "+":
		return (*sortedSet).len, nil
	case text == "" || text[0] != '[' && text[0] != '(':
		return nil, errors.New("ERR min or max not valid string range item")
	}
	member := text[1:]
	if text[:1] == behind {
		member += "\x00"
	}
	return func(z *sortedSet) int {
		first, _ := z.order.GetAt(0)
		return z.countBefore(scored{first.score, member})
	}, nil
}

// zrange and zrevrange know ranges of ranks, with WITHSCORES.
func zrange(k *keyspace, args []string) (any, error)    { return ranks(k, args, false) }
func zrevrange(k *keyspace, args []string) (any, error) { return ranks(k, args, true) }

func ranks(k *keyspace, args []string, backwards bool) (any, error) {
	with := false
	for _, option := range args[4:] {
		if !strings.EqualFold(option, "WITHSCORES") {
			return nil, errSyntax
		}
		with = true
	}
	which, err := readSpan(args[2], args[3])
	if err != nil {
		return nil, err
	}
	v, err := k.get(args[1], kindZset)
	if v == nil || err != nil {
		return []any{}, err
	}
	length := v.zset.len()
	from, to := which.of(length)
	if from > to {
		return []any{}, nil
	}
	if backwards {
		from, to = length-1-to, length-1-from
	}
	items := v.zset.slice(from, to)
	if backwards {
		slices.Reverse(items)
	}
	return members(items, with), nil
}

// zrangebyscore does ZRANGEBYSCORE with WITHSCORES and LIMIT.
func zrangebyscore(k *keyspace, args []string) (any, error) {
	r, err := scores(args[2], args[3])
	if err != nil {
		return nil, err
	}
	with, offset, limit := false, 0, -1
	for rest := args[4:]; len(rest) > 0; {
		switch {
		case strings.EqualFold(rest[0], "WITHSCORES"):
			with, rest = true, rest[1:]
		case strings.EqualFold(rest[0], "LIMIT") && len(rest) >= 3:
			a, errA := number(rest[1])
			b, errB := number(rest[2])
			if err := errors.Join(errA, errB); err != nil {
				return nil, errNotInt
			}
			offset, limit, rest = int(a), int(b), rest[3:]
		default:
			return nil, errSyntax
		}
	}
	v, err := k.get(args[1], kindZset)
	if v == nil || err != nil || offset < 0 {
		return []any{}, err
	}
	return members(v.zset.between(r, offset, limit), with), nil
}

// zscan gives the whole set at once, as Redis does with small ones.
func zscan(k *keyspace, args []string) (any, error) {
	if err := onlyCount(args[3:]); err != nil {
		return nil, err
	}
	all, err := ranks(k, []string{args[0], args[1], "0", "-1", "WITHSCORES"}, false)
	if err != nil {
		return nil, err
	}
	return []any{"0", all}, nil
}

func members(items []scored, withScores bool) []any {
	out := make([]any, 0, 2*len(items))
	for _, item := range items {
		out = append(out, item.member)
		if withScores {
			out = append(out, decimalText(item.score))
		}
	}
	return out
}
