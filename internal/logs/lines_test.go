package logs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Pieces of two instances, as ComfyUI writes them, make one readable terminal.
func TestLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pieces []string // "instance: text"
		want   string
	}{
		"lines":              {[]string{"a:one\n", "b:two\n", "a:three\n"}, "[a] one\n[b] two\n[a] three\n"},
		"line and end apart": {[]string{"a:one", "a:\n", "b:two\n"}, "[a] one\n[b] two\n"},
		"a line cut by another's": {
			[]string{"a:one", "b:two\n", "a: more\n"}, "[a] one\n[b] two\n[a]  more\n",
		},
		"traceback": {
			[]string{"a:Traceback (most recent call last):\n  File \"x.py\", line 1\nValueError: no\n"},
			"[a] Traceback (most recent call last):\n[a]   File \"x.py\", line 1\n[a] ValueError: no\n",
		},
		"bar":             {[]string{"a:\r 10%", "a:\r 20%", "a:\n", "a:done\n"}, "\r[a]  10%\r[a]  20%\n[a] done\n"},
		"line in a bar":   {[]string{"a:\r 10%", "b:two\n", "a:\r 20%", "a:\n"}, "\r[a]  10%\n[b] two\n\r[a]  20%\n"},
		"two bars":        {[]string{"a:\r 10%", "b:\r 5%", "a:\r 20%"}, "\r[a]  10%\r[b]  5%\r[a]  20%"},
		"carriage return": {[]string{"a:one\r\n", "a:two\r\n"}, "[a] one\r\n[a] two\r\n"},
		"nothing":         {[]string{"a:", "b:x\n"}, "[b] x\n"},
	} {
		var l lines
		var b strings.Builder
		for _, p := range c.pieces {
			instance, text, _ := strings.Cut(p, ":")
			b.WriteString(l.piece(instance, text))
		}
		require.Equal(t, c.want, b.String(), name)
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	entries := func(texts ...string) (list pyjson.Array) {
		for _, text := range texts {
			at, m, _ := strings.Cut(text, " ")
			list = append(list, Entry(at, m))
		}
		return list
	}
	var text strings.Builder
	for _, l := range Join(map[string]pyjson.Array{
		"b": entries("1 b one\n", "3 Traceback:\n  File\n", "5 \r 50%", "6 \r 100%", "7 \n"),
		"a": append(entries("2 a", "4 one", "4 \n", "8 open"), pyjson.Null{}),
	}) {
		text.WriteString(l.Time + l.Text)
	}
	require.Equal(t, "1[b] b one\n2[a] aone\n3[b] Traceback:\n[b]   File\n5[b]  100%\n8[a] open\n", text.String())

	long := make(pyjson.Array, maxLines+5)
	for n := range long {
		long[n] = Entry("1", "x\n")
	}
	require.Len(t, Join(map[string]pyjson.Array{"a": long}), maxLines)
}

// FuzzMessage: whatever an instance says of its log, a client is sent JSON,
// or nothing.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"type": "logs", "data": {"entries": [{"t": "1", "m": "x\r\ny"}], "size": null}}`))
	f.Add([]byte(`{"data": {"entries": [1, {"m": "\ud800"}]}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, frame []byte) {
		var l lines
		for _, instance := range []string{"a", "b"} {
			if m := l.message(instance, frame); m != nil {
				require.True(t, json.Valid(m), "%q", m)
			}
		}
	})
}
