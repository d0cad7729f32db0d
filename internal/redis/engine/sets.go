package engine

func sadd(k *keyspace, args []string) (any, error) {
	v, err := k.change(args[1], kindSet)
	if err != nil {
		return nil, err
	}
	n := int64(0)
	for _, member := range args[2:] {
		_, had := v.set.Set(member, struct{}{})
		n += answer(!had)
	}
	return n, nil
}

func srem(k *keyspace, args []string) (any, error) {
	v, err := k.existing(args[1], kindSet)
	if v == nil || err != nil {
		return int64(0), err
	}
	n := int64(0)
	for _, member := range args[2:] {
		_, had := v.set.Delete(member)
		n += answer(had)
	}
	k.dropIfEmpty(args[1], v)
	return n, nil
}

func smembers(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindSet)
	out := []any{}
	if v == nil || err != nil {
		return out, err
	}
	v.set.Scan(func(member string, _ struct{}) bool {
		out = append(out, member)
		return true
	})
	return out, nil
}

func sismember(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindSet)
	if v == nil || err != nil {
		return int64(0), err
	}
	_, found := v.set.Get(args[2])
	return answer(found), nil
}

func scard(k *keyspace, args []string) (any, error) {
	v, err := k.get(args[1], kindSet)
	if v == nil || err != nil {
		return int64(0), err
	}
	return int64(v.set.Len()), nil
}
