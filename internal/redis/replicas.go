package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// confirmTimeout is how long replicas may take to confirm what they were sent. It is
// shorter than ioTimeout: a connection that waits for them is not taken for a broken one.
const confirmTimeout = time.Second

// replicas waits until replicas have what a script has written. It has connections of
// its own: those that wait must not keep anything else from Redis.
//
// A write that was not confirmed in time stays. To have as few of these as possible,
// nothing more is written after the first one until the replicas have caught up.
type replicas struct {
	client goredis.UniversalClient
	want   int

	mu     sync.Mutex
	behind error // why the last write was not confirmed, nil if it was
	asking bool  // somebody finds out whether they have caught up
}

// run runs a script. If it fails because replicas are missing, the script either has not
// run, or it has and the master alone may know it.
func (c *replicas) run(ctx context.Context, src source, keys []string, args []any) ([]string, error) {
	if err := c.caughtUp(ctx, keys[0]); err != nil {
		return nil, err
	}
	cmd, err := c.confirmed(ctx, keys[0], func(p Pipeliner) *goredis.Cmd { return p.EvalSha(ctx, src.sha, keys, args...) })
	if err != nil && strings.Contains(err.Error(), "NOSCRIPT") {
		cmd, err = c.confirmed(ctx, keys[0], func(p Pipeliner) *goredis.Cmd { return p.Eval(ctx, src.text, keys, args...) })
	}
	if err != nil {
		return nil, err
	}
	return cmd.StringSlice()
}

// caughtUp reports why nothing may be written now. One caller asks the replicas, and the
// others do not wait for that.
func (c *replicas) caughtUp(ctx context.Context, key string) error {
	c.mu.Lock()
	if c.behind == nil || c.asking {
		defer c.mu.Unlock()
		return c.behind
	}
	c.asking = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asking = false
	}()
	_, err := c.confirmed(ctx, key, func(p Pipeliner) *goredis.Cmd { return p.Do(ctx, "ping") })
	return err
}

// confirmed sends a command and waits until the replicas have everything up to it. Both
// go over one connection, because Redis counts from the last command of that.
func (c *replicas) confirmed(ctx context.Context, key string, do func(Pipeliner) *goredis.Cmd) (*goredis.Cmd, error) {
	master, err := c.master(ctx, key)
	if err != nil {
		return nil, classify(ctx, err)
	}
	var cmd, wait *goredis.Cmd
	_, _ = master.Pipelined(ctx, func(p Pipeliner) error {
		cmd, wait = do(p), p.Do(ctx, "wait", c.want, confirmTimeout.Milliseconds())
		return nil
	})
	if err := cmd.Err(); err != nil && !errors.Is(err, goredis.Nil) {
		return nil, c.moved(ctx, classify(ctx, err))
	}
	have, err := wait.Int64()
	if err == nil && have < int64(c.want) {
		err = &unavailableError{fmt.Errorf("%d of %d replicas have confirmed within %s", have, c.want, confirmTimeout)}
	}
	err = classify(ctx, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind = err
	return cmd, err
}

// master returns a client of the master that has the keys of the hub.
func (c *replicas) master(ctx context.Context, key string) (goredis.UniversalClient, error) {
	if cluster, ok := c.client.(*goredis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return c.client, nil
}

// moved learns where the keys are now, if a node of a cluster says that it no longer has
// them. The caller is asked to try again.
func (c *replicas) moved(ctx context.Context, err error) error {
	text := err.Error()
	cluster, ok := c.client.(*goredis.ClusterClient)
	if !ok || !strings.Contains(text, "MOVED ") && !strings.Contains(text, "ASK ") && !strings.Contains(text, "READONLY ") {
		return err
	}
	cluster.ReloadState(ctx)
	return &unavailableError{err}
}
