package main

import (
	"context"
	"errors"
	"time"
)

// lateKinds returns the faults of a hub that starts while what it needs is away. It
// must wait, and then begin by itself.
func lateKinds(ready func(context.Context, *stage, int) error) []kind {
	base := kind{shortest: 7 * time.Second, longest: 20 * time.Second, targets: hubs, at: hubName, downs: true}
	redis, storage := base, base
	redis.name, redis.targets = "hub-before-redis", links
	redis.strike = func(s *stage, n int) error {
		s.hubs[n].Hub.Kill()
		s.hubs[n].redis.part()
		return s.hubs[n].Hub.Restart()
	}
	redis.heal = func(ctx context.Context, s *stage, n int) error {
		s.hubs[n].redis.heal()
		return ready(ctx, s, n)
	}
	storage.name, storage.also = "hub-before-storage", storageName
	storage.strike = func(s *stage, n int) error {
		s.hubs[n].Hub.Kill()
		return errors.Join(s.breakStorage(), s.hubs[n].Hub.Restart())
	}
	storage.heal = func(ctx context.Context, s *stage, n int) error {
		return errors.Join(s.mendStorage(), ready(ctx, s, n))
	}
	return []kind{redis, storage}
}
