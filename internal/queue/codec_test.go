package queue

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Memory for a stored body is allocated by its size before it is read. A short
// body must not get the memory of the largest one.
func TestSizeOfStoredBodies(t *testing.T) {
	t.Parallel()
	c, err := newCodec()
	require.NoError(t, err)
	for _, size := range []int{0, 1, 10, 100, 200, 255, 256, 300, 1000, 100_000, 1 << 20, 3 << 20} {
		stored := c.encodeBody(job.Body{Prompt: []byte(strings.Repeat("x", size))})
		got := unpackedSize(stored)
		require.GreaterOrEqual(t, got, int64(size))
		require.LessOrEqual(t, got, int64(size)+maxBlock+1024, "a body of %d bytes", size)
	}
	require.EqualValues(t, maxUnpacked, unpackedSize([]byte("no frame")))
}

// A trace is a part of the body that hubs which do not know it skip. Without one the body is the
// same as before, byte for byte.
func TestTraceInAStoredBody(t *testing.T) {
	t.Parallel()
	c, err := newCodec()
	require.NoError(t, err)
	with := job.Body{Prompt: []byte("{}"), Extra: []byte("{}"), Outputs: []string{"1"}, Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	got, err := c.decodeBody(c.encodeBody(with))
	require.NoError(t, err)
	require.Equal(t, with, got)
	with.Trace = ""
	data, err := c.expand(c.encodeBody(with))
	require.NoError(t, err)
	require.Equal(t, "\x01\x02{}\x02\x02{}\x03\x011", string(data))
}

func TestBodyRoundTrip(t *testing.T) {
	t.Parallel()
	c, err := newCodec()
	require.NoError(t, err)
	for _, b := range []job.Body{
		{Prompt: []byte{}, Extra: []byte{}},
		{
			Prompt: []byte(`{"a":NaN}`), Extra: []byte("\x00\xff"), Outputs: []string{"", "9", "57:3"},
			Targets: []byte{}, Other: []byte(`{"workflow_metadata": 1}`), Inputs: bytes.Repeat([]byte("in"), 1<<16),
		},
	} {
		got, err := c.decodeBody(c.encodeBody(b))
		require.NoError(t, err)
		require.Equal(t, b, got)
	}
}

// A newer hub's fields are skipped.
func TestBodyOfANewerHub(t *testing.T) {
	t.Parallel()
	data := appendField(nil, tagPrompt, []byte("p"))
	data = appendField(data, 77, []byte("future"))
	data = appendField(data, tagExtra, []byte("e"))
	b, err := parseBody(data)
	require.NoError(t, err)
	require.Equal(t, job.Body{Prompt: []byte("p"), Extra: []byte("e")}, b)
}

func TestCorruptValues(t *testing.T) {
	t.Parallel()
	c, err := newCodec()
	require.NoError(t, err)
	_, err = c.decodeBody([]byte("not zstd"))
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = c.decodeBody(c.compress([]byte{tagPrompt, 200}))
	require.ErrorIs(t, err, ErrCorrupt)
	for _, r := range []record{
		{"state": "queued", "fence": "x"},
		{"state": "odd"},
		{"state": "queued", "lost": "5:a"},
		{"state": "queued", "progress": "much"},
	} {
		_, err := r.job()
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

func FuzzParseBody(f *testing.F) {
	f.Add(appendField(appendField(nil, tagPrompt, []byte("p")), tagOutput, []byte("9")))
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := parseBody(data)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		c, err := newCodec()
		require.NoError(t, err)
		again, err := c.decodeBody(c.encodeBody(b))
		require.NoError(t, err)
		require.Equal(t, string(b.Prompt), string(again.Prompt))
		require.Equal(t, b.Outputs, again.Outputs)
	})
}

func FuzzReadEvent(f *testing.F) {
	f.Add(redis.Pack("queued", "k", "id", "t", "c", "cl", "gpu", "hub", "queued"))
	f.Add(redis.Pack("queued", "k"))
	f.Fuzz(func(t *testing.T, payload string) {
		if e, ok := readEvent(payload); ok {
			require.LessOrEqual(t, len(e.Key)+len(e.ID)+len(e.Client), len(payload))
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add("001:x:key", "queued", "12", "3:abc", "0.5")
	f.Fuzz(func(t *testing.T, rank, state, number, lost, progress string) {
		j, err := record{"rank": rank, "state": state, "fence": number, "lost": lost, "progress": progress}.job()
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		require.True(t, j.State.Live() || j.State.Ended())
	})
}

func FuzzReadOrphans(f *testing.F) {
	f.Add("k\x001\x00gpu\x00hub\x00u\x00s\x002\x00leased\x000\x000\x00")
	f.Fuzz(func(t *testing.T, text string) {
		var values []string
		for v := range bytes.SplitSeq([]byte(text), []byte{0}) {
			values = append(values, string(v))
		}
		if orphans, err := readOrphans(values); err == nil {
			require.Len(t, values, len(orphans)*orphanFields)
		}
	})
}

func FuzzReadCallbackEvent(f *testing.F) {
	f.Add(redis.Pack("id", "done", "1", "2", "3", "4", "why"))
	f.Add(redis.Pack("id", "done", "1", "2", "x", "4", "\xff"))
	f.Add("7:id")
	f.Fuzz(func(t *testing.T, packed string) {
		e, err := readCallbackEvent(packed, "tenant", "prompt", "url", 1)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		require.True(t, utf8.ValidString(e.Reason))
	})
}
