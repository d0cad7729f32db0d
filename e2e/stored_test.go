package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// stored is what hubs keep and tell each other, and what they answer. Its file
// is text that a reviewer can read: values that are not text are in Base64.
type stored struct {
	// Version is the commit of the hub that wrote it.
	Version string
	// Keys are all keys of Redis.
	Keys map[string]storedKey
	// Files are those of the data folder, by their paths in it.
	Files map[string]blob
	// Published is what went over Redis's channels, in this order.
	Published []publication
	// Answers are bodies of GET, by tenant and path with a space between.
	Answers map[string]blob
}

// storedKey is a key of Redis.
type storedKey struct {
	Type string
	// Left is how long the key still exists, 0 for ever.
	Left time.Duration `json:",omitempty"`
	// Values are the string, the elements of a list or set, or, in pairs, the
	// fields and values of a hash and the members and scores of a zset.
	Values []blob
}

type publication struct {
	Channel string
	Payload blob
}

// blob is any bytes, which JSON shows as text if they are text.
type blob string

const inBase64 = "base64:"

// root begins all keys and channels.
const root = "{comfyhub}:"

func (b blob) MarshalText() ([]byte, error) {
	odd := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }
	if utf8.ValidString(string(b)) && !strings.ContainsFunc(string(b), odd) && !strings.HasPrefix(string(b), inBase64) {
		return []byte(b), nil
	}
	return []byte(inBase64 + base64.StdEncoding.EncodeToString([]byte(b))), nil
}

func (b *blob) UnmarshalText(text []byte) error {
	code, found := bytes.CutPrefix(text, []byte(inBase64))
	if !found {
		*b = blob(text)
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(string(code))
	*b = blob(data)
	return err
}

// readStored reads the file that a hub of the last version has written.
func readStored(t *testing.T) *stored {
	t.Helper()
	text, err := os.ReadFile(lastVersion)
	require.NoError(t, err)
	s := new(stored)
	require.NoError(t, json.Unmarshal(text, s))
	return s
}

// write replaces that file.
func (s *stored) write(t *testing.T) {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "\t")
	require.NoError(t, encoder.Encode(s))
	require.NoError(t, os.WriteFile(lastVersion, text.Bytes(), 0o600))
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
	names, err := c.Keys(ctx, "*").Result()
	require.NoError(t, err)
	s.Keys = map[string]storedKey{}
	for _, name := range names {
		if strings.HasPrefix(name, root+"nonce:") {
			continue // what a script replied, for the minute in which it may be sent again
		}
		left, err := c.PTTL(ctx, name).Result()
		require.NoError(t, err)
		kind, err := c.Type(ctx, name).Result()
		require.NoError(t, err)
		k := storedKey{Type: kind, Left: max(0, left)}
		switch kind {
		case "none":
			continue // it has just expired
		case "string":
			value, err := c.Get(ctx, name).Result()
			require.NoError(t, err)
			k.Values = []blob{blob(value)}
		case "hash":
			all, err := c.HGetAll(ctx, name).Result()
			require.NoError(t, err)
			for field, value := range all {
				k.Values = append(k.Values, blob(field), blob(value))
			}
			k.sortPairs()
		case "zset":
			all, err := c.ZRangeWithScores(ctx, name, 0, -1).Result()
			require.NoError(t, err)
			for _, z := range all {
				k.Values = append(k.Values, blob(z.Member.(string)), blob(strconv.FormatFloat(z.Score, 'f', -1, 64)))
			}
		case "set":
			all, err := c.SMembers(ctx, name).Result()
			require.NoError(t, err)
			for _, member := range slices.Sorted(slices.Values(all)) {
				k.Values = append(k.Values, blob(member))
			}
		case "list":
			all, err := c.LRange(ctx, name, 0, -1).Result()
			require.NoError(t, err)
			for _, value := range all {
				k.Values = append(k.Values, blob(value))
			}
		default:
			require.Fail(t, "a type that nobody keeps", "%s: %s", name, kind)
		}
		s.Keys[name] = k
	}
}

func (k *storedKey) sortPairs() {
	pairs := slices.Collect(slices.Chunk(k.Values, 2))
	slices.SortFunc(pairs, func(a, b []blob) int { return strings.Compare(string(a[0]), string(b[0])) })
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
				score, err := strconv.ParseFloat(string(pair[1]), 64)
				require.NoError(t, err)
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
	s.Files = map[string]blob{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(name, "hub-id-") {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		s.Files[name] = blob(data)
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
			s.Published = append(s.Published, publication{message.Channel, blob(message.Payload)})
		}
	}()
	return func() {
		cancel()
		sub.Close()
		<-done
	}
}
