package logs

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/stream"
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

// fakeSockets notes what each client is sent.
type fakeSockets struct {
	connected func(stream.Key) bool
	sent      map[string][]string
}

func (f *fakeSockets) Connected(k stream.Key) bool { return f.connected(k) }

func (f *fakeSockets) Send(k stream.Key, m stream.Message) {
	f.sent[k.Client] = append(f.sent[k.Client], string(m.Data))
}

// Whoever reads the log and is connected goes on reading it, whatever number of
// client ids somebody makes up.
func TestReadersAreNotPushedOut(t *testing.T) {
	t.Parallel()
	reader := stream.Key{Tenant: "default", Client: "reader"}
	sockets := &fakeSockets{connected: func(k stream.Key) bool { return k == reader }}
	l := NewReaders(sockets)
	require.True(t, l.Set(reader, true))
	for n := range 3 * maxReaders {
		l.Set(stream.Key{Tenant: "default", Client: fmt.Sprint(n)}, true)
		require.LessOrEqual(t, len(l.all()), maxReaders)
	}
	require.Contains(t, l.all(), reader)
	sockets.connected = func(stream.Key) bool { return true }
	for n := range 3 * maxReaders {
		l.Set(stream.Key{Tenant: "default", Client: fmt.Sprint("c", n)}, true)
		require.LessOrEqual(t, len(l.all()), maxReaders)
	}
	require.Contains(t, l.all(), reader)
	l.Set(reader, false)
	require.NotContains(t, l.all(), reader)
}

// Each reader gets each message: one instance's as it is, those of several with
// their names. What cannot be read is dropped.
func TestReadersGetEachMessage(t *testing.T) {
	t.Parallel()
	sockets := &fakeSockets{sent: map[string][]string{}}
	r := NewReaders(sockets)
	message := func(text string) []byte {
		return []byte(`{"type": "logs", "data": {"entries": [{"t": "1", "m": "` + text + `\n"}], "size": null}}`)
	}
	r.Pass("a", message("nobody reads it"), false)
	for _, client := range []string{"ann", "bob"} {
		require.True(t, r.Set(stream.Key{Tenant: "default", Client: client}, true))
	}
	r.Pass("a", message("one"), false)
	r.Pass("a", message("two"), true)
	r.Pass("b", []byte(`{"type": "logs", "data": `), true)
	require.True(t, r.Set(stream.Key{Tenant: "default", Client: "bob"}, false))
	r.Pass("b", message("three"), true)
	require.False(t, r.Set(stream.Key{Tenant: "default", Client: "ann"}, false))
	r.Pass("b", message("four"), true)
	require.Equal(t, map[string][]string{
		"ann": {string(message("one")), string(message("[a] two")), string(message("[b] three"))},
		"bob": {string(message("one")), string(message("[a] two"))},
	}, sockets.sent)
}
