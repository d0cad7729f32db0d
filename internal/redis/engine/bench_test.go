package engine_test

import (
	"fmt"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
)

// bench is an engine with a client.
type bench struct {
	*engine.Engine
	client goredis.UniversalClient
}

// open starts an engine in a folder; "" keeps nothing. It ends with the test.
func open(t testing.TB, dir string) *bench {
	t.Helper()
	e, err := engine.Open(engine.Options{Dir: dir})
	require.NoError(t, err)
	b := &bench{Engine: e, client: goredis.NewClient(&goredis.Options{Dialer: e.Dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1})}
	t.Cleanup(func() {
		_ = b.client.Close()
		require.NoError(t, e.Close())
	})
	return b
}

// run runs a script and waits until it is on the disk.
func (b *bench) run(script string, args ...any) ([]string, error) {
	compiled, err := engine.Compile("test", script)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(args))
	for i, arg := range args {
		texts[i] = fmt.Sprint(arg)
	}
	if err := b.Usable(); err != nil {
		return nil, err
	}
	reply, err := b.Run(compiled, nil, texts)
	if syncErr := b.Sync(); syncErr != nil {
		return nil, syncErr
	}
	return reply, err
}
