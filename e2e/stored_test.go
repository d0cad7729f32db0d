package e2e

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/e2e/storedtest"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// stored is what hubs keep and tell each other, and what they answer.
type stored struct{ storedtest.Recording }

// root begins all keys and channels.
const root = "{comfyhub}:"

// readStored reads the file that a hub of the last version has written.
func readStored(t *testing.T) *stored {
	t.Helper()
	r := must.Get(storedtest.LastVersion())(t)
	return &stored{r}
}

// write replaces that file.
func (s *stored) write(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile("storedtest/lastversion.json", must.Get(s.Text())(t), 0o600))
}

// client is a connection of the test's own.
func client(t *testing.T, server *redistest.Server) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	t.Cleanup(func() { c.Close() })
	return c
}

// keep reads all keys.
func (s *stored) keep(t *testing.T, c *goredis.Client) {
	t.Helper()
	ctx := t.Context()
	names := must.Get(c.Keys(ctx, "*").Result())(t)
	s.Keys = map[string]storedtest.Key{}
	for _, name := range names {
		if strings.HasPrefix(name, root+"nonce:") {
			continue // what a script replied, for the minute in which it may be sent again
		}
		left := must.Get(c.PTTL(ctx, name).Result())(t)
		kind := must.Get(c.Type(ctx, name).Result())(t)
		k := storedtest.Key{Type: kind, Left: max(0, left)}
		switch kind {
		case "none":
			continue // it has just expired
		case "string":
			value := must.Get(c.Get(ctx, name).Result())(t)
			k.Values = []storedtest.Blob{storedtest.Blob(value)}
		case "hash":
			all := must.Get(c.HGetAll(ctx, name).Result())(t)
			for field, value := range all {
				k.Values = append(k.Values, storedtest.Blob(field), storedtest.Blob(value))
			}
			sortPairs(&k)
		case "zset":
			all := must.Get(c.ZRangeWithScores(ctx, name, 0, -1).Result())(t)
			for _, z := range all {
				k.Values = append(k.Values, storedtest.Blob(z.Member.(string)), storedtest.Blob(strconv.FormatFloat(z.Score, 'f', -1, 64)))
			}
		case "set":
			all := must.Get(c.SMembers(ctx, name).Result())(t)
			for _, member := range slices.Sorted(slices.Values(all)) {
				k.Values = append(k.Values, storedtest.Blob(member))
			}
		case "list":
			all := must.Get(c.LRange(ctx, name, 0, -1).Result())(t)
			for _, value := range all {
				k.Values = append(k.Values, storedtest.Blob(value))
			}
		default:
			require.Fail(t, "a type that nobody keeps", "%s: %s", name, kind)
		}
		s.Keys[name] = k
	}
}

func sortPairs(k *storedtest.Key) {
	pairs := slices.Collect(slices.Chunk(k.Values, 2))
	slices.SortFunc(pairs, func(a, b []storedtest.Blob) int { return strings.Compare(string(a[0]), string(b[0])) })
	k.Values = slices.Concat(pairs...)
}

// fill writes all keys into an empty Redis.
func (s *stored) fill(t *testing.T, c *goredis.Client) {
	t.Helper()
	ctx := t.Context()
	for name, k := range s.Keys {
		values := make([]any, len(k.Values))
		for n, v := range k.Values {
			values[n] = string(v)
		}
		switch k.Type {
		case "string":
			require.NoError(t, c.Set(ctx, name, values[0], 0).Err())
		case "hash":
			require.NoError(t, c.HSet(ctx, name, values...).Err())
		case "zset":
			for pair := range slices.Chunk(k.Values, 2) {
				score := must.Get(strconv.ParseFloat(string(pair[1]), 64))(t)
				if name == root+"q:tombs" {
					// When the tombstone of a cancelled job ends: as far off as it was.
					score = float64(time.Now().Add(10 * time.Minute).UnixMilli())
				}
				require.NoError(t, c.ZAdd(ctx, name, goredis.Z{Member: string(pair[0]), Score: score}).Err())
			}
		case "set":
			require.NoError(t, c.SAdd(ctx, name, values...).Err())
		case "list":
			require.NoError(t, c.RPush(ctx, name, values...).Err())
		}
		if k.Left > 0 {
			require.NoError(t, c.PExpire(ctx, name, k.Left).Err())
		}
	}
}

// keepFiles reads the files of a data folder. It leaves out which hub has used
// the folder, because that is this machine's name.
func (s *stored) keepFiles(t *testing.T, dir string) {
	t.Helper()
	s.Files = map[string]storedtest.Blob{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(name, "hub-id-") {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		s.Files[name] = storedtest.Blob(data)
		return err
	})
	require.NoError(t, err)
}

// fillFiles writes them into a folder.
func (s *stored) fillFiles(t *testing.T, dir string) {
	t.Helper()
	for name, data := range s.Files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(data), 0o600))
	}
}

// listen notes what is published until the returned function is called.
func (s *stored) listen(t *testing.T, c *goredis.Client) (stop func()) {
	t.Helper()
	sub := c.PSubscribe(t.Context(), "*")
	_, err := sub.Receive(t.Context()) // it is subscribed
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			message, err := sub.ReceiveMessage(ctx)
			if err != nil {
				return
			}
			s.Published = append(s.Published, storedtest.Publication{Channel: message.Channel, Payload: storedtest.Blob(message.Payload)})
		}
	}()
	return func() {
		cancel()
		sub.Close()
		<-done
	}
}
