package engine

import "slices"

func rpush(k *keyspace, args []string) (any, error) {
	v, err := k.change(args[1], kindList)
	if err != nil {
		return nil, err
	}
	v.list = append(v.list, args[2:]...)
	return int64(len(v.list)), nil
}

func lpush(k *keyspace, args []string) (any, error) {
	v, err := k.change(args[1], kindList)
	if err != nil {
		return nil, err
	}
	front := slices.Clone(args[2:])
	slices.Reverse(front)
	v.list = append(front, v.list...)
	return int64(len(v.list)), nil
}

func lrange(k *keyspace, args []string) (any, error) {
	which, err := readSpan(args[2], args[3])
	if err != nil {
		return nil, err
	}
	out := []any{}
	v, err := k.get(args[1], kindList)
	if v == nil || err != nil {
		return out, err
	}
	from, to := which.of(len(v.list))
	for i := from; i <= to; i++ {
		out = append(out, v.list[i])
	}
	return out, nil
}

func lindex(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindList)
	if v == nil || err != nil {
		return nil, err
	}
	at, err := number(args[2])
	if err != nil {
		return nil, err
	}
	if at < 0 {
		at += int64(len(v.list))
	}
	if at < 0 || at >= int64(len(v.list)) {
		return nil, nil
	}
	return v.list[at], nil
}

func ltrim(k *keyspace, args []string) (any, error) {
	which, err := readSpan(args[2], args[3])
	if err != nil {
		return nil, err
	}
	v, err := k.existing(args[1], kindList)
	if v == nil || err != nil {
		return ok, err
	}
	if from, to := which.of(len(v.list)); from > to {
		v.list = nil
	} else {
		v.list = slices.Clone(v.list[from : to+1])
	}
	k.dropIfEmpty(args[1], v)
	return ok, nil
}

func llen(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindList)
	if v == nil || err != nil {
		return int64(0), err
	}
	return int64(len(v.list)), nil
}
