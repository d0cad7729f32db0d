package e2e

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
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

// keyForm is what a version of the hub must not change about a key: its type,
// whether it expires, and the kinds of values by field. The fields of a hash
// are its own; other types have one, which has no name.
type keyForm struct {
	Type   string
	Leaves bool
	Fields map[string]kinds
}

// kinds are the kinds of values that a field was seen to have, none if it was
// empty.
type kinds map[string]bool

// varying are the parts of names that differ in every run.
var varying = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-9a-f]{16}/[0-9a-f]{16}`), "HUB"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`[0-9a-f]{16,64}`), "HEX"},
	{regexp.MustCompile(`/[0-9]{10}-HEX`), "/TIME-HEX"},
	{regexp.MustCompile(`(content|names|output)/[0-9a-f]{2}/`), "$1/XX/"},
	{regexp.MustCompile(`^[\w-]{16}$`), "TOKEN"},
	{regexp.MustCompile(`_[0-9]{5}_`), "_NUMBER_"},
	{regexp.MustCompile(`^[0-9]+:HEX`), "PACKED"},
}

// plainName is a name without them.
func plainName(name string) string {
	for _, v := range varying {
		name = v.pattern.ReplaceAllString(name, v.name)
	}
	return name
}

// forms are the forms of all keys by plain name.
func (s *stored) forms(t *testing.T) map[string]keyForm {
	t.Helper()
	out := map[string]keyForm{}
	for name, k := range s.Keys {
		name = plainName(name)
		f := keyForm{k.Type, k.Left > 0, map[string]kinds{}}
		if before, found := out[name]; found {
			require.Equal(t, before.Type, f.Type, name)
			require.Equal(t, before.Leaves, f.Leaves, name)
			f = before
		}
		switch k.Type {
		case "hash":
			for pair := range slices.Chunk(k.Values, 2) {
				f.add(t, plainName(string(pair[0])), pair[1])
			}
		case "zset":
			for pair := range slices.Chunk(k.Values, 2) {
				f.add(t, "", pair[0])
			}
		default:
			for _, value := range k.Values {
				f.add(t, "", value)
			}
		}
		out[name] = f
	}
	return out
}

func (f keyForm) add(t *testing.T, field string, value storedtest.Blob) {
	t.Helper()
	if f.Fields[field] == nil {
		f.Fields[field] = kinds{}
	}
	if kind := kindOf(t, string(value)); kind != "" {
		f.Fields[field][kind] = true
	}
}

var number = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// kindOf says what a value is: a number, JSON with its names, a packed list with
// the kinds of its parts, or a compressed body with its tags.
func kindOf(t *testing.T, value string) string {
	t.Helper()
	var object map[string]any
	switch {
	case value == "":
		return ""
	case number.MatchString(value):
		return "number"
	case json.Unmarshal([]byte(value), &object) == nil:
		names := []string{}
		for name := range object {
			names = append(names, plainName(name))
		}
		slices.Sort(names)
		return "{" + strings.Join(slices.Compact(names), " ") + "}"
	case strings.HasPrefix(value, "\x28\xb5\x2f\xfd"):
		return "compressed " + bodyKind(t, value)
	}
	if parts, ok := unpack(value); ok {
		list := make([]string, len(parts))
		for n, part := range parts {
			list[n] = kindOf(t, part)
		}
		return "packed " + strings.Join(list, " ")
	}
	if !storedtest.Blob(value).IsText() {
		return "binary"
	}
	return "text"
}

// unpack splits a list whose parts are each preceded by their length.
func unpack(packed string) (parts []string, ok bool) {
	for packed != "" {
		digits, rest, found := strings.Cut(packed, ":")
		n, err := strconv.Atoi(digits)
		if !found || err != nil || n < 0 || n > len(rest) {
			return nil, false
		}
		parts, packed = append(parts, rest[:n]), rest[n:]
	}
	return parts, true
}

// bodyKind is the kind of a compressed value: JSON, or the tags of a job's body.
func bodyKind(t *testing.T, value string) string {
	t.Helper()
	d := must.Get(zstd.NewReader(nil))(t)
	defer d.Close()
	data := must.Get(d.DecodeAll([]byte(value), nil))(t)
	if json.Valid(data) {
		return kindOf(t, string(data))
	}
	tags := map[uint64]bool{}
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		require.Positive(t, n)
		data = data[n:]
		size, n := binary.Uvarint(data)
		require.Positive(t, n)
		require.LessOrEqual(t, size, uint64(len(data)-n))
		data = data[n+int(size):]
		tags[tag] = true
	}
	var list []string
	for tag := range uint64(64) {
		if tags[tag] {
			list = append(list, string(rune('0'+tag)))
		}
	}
	return "body " + strings.Join(list, " ")
}

// messages are the words that begin what is published, by channel, with the number
// of parts that follow each.
func (s *stored) messages() map[string]map[string]int {
	out := map[string]map[string]int{}
	for _, p := range s.Published {
		channel := plainName(p.Channel)
		if out[channel] == nil {
			out[channel] = map[string]int{}
		}
		if parts, ok := unpack(string(p.Payload)); ok && len(parts) > 0 {
			out[channel][parts[0]] = len(parts) - 1
		}
	}
	return out
}
