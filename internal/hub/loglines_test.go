package hub

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Pieces of two instances, as ComfyUI writes them, make one readable terminal.
func TestLogLines(t *testing.T) {
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
		var lines logLines
		var b strings.Builder
		for _, p := range c.pieces {
			instance, text, _ := strings.Cut(p, ":")
			b.WriteString(lines.piece(instance, text))
		}
		require.Equal(t, c.want, b.String(), name)
	}
}

func TestJoinLogs(t *testing.T) {
	t.Parallel()
	entries := func(texts ...string) (list pyjson.Array) {
		for _, text := range texts {
			at, m, _ := strings.Cut(text, " ")
			list = append(list, logEntry(at, m))
		}
		return list
	}
	var text strings.Builder
	for _, l := range joinLogs(map[string]pyjson.Array{
		"b": entries("1 b one\n", "3 Traceback:\n  File\n", "5 \r 50%", "6 \r 100%", "7 \n"),
		"a": append(entries("2 a", "4 one", "4 \n", "8 open"), pyjson.Null{}),
	}) {
		text.WriteString(l.time + l.text)
	}
	require.Equal(t, "1[b] b one\n2[a] aone\n3[b] Traceback:\n[b]   File\n5[b]  100%\n8[a] open\n", text.String())

	long := make(pyjson.Array, maxLogEntries+5)
	for n := range long {
		long[n] = logEntry("1", "x\n")
	}
	require.Len(t, joinLogs(map[string]pyjson.Array{"a": long}), maxLogEntries)
}

// The log panel shows the lines of all servers with their names.
func TestLogsOfAllInstances(t *testing.T) {
	t.Parallel()
	one, two := newPack(t, "one", sim.Config{}), newPack(t, "two", sim.Config{})
	b := packed(t, one, two)
	var names []string
	for _, i := range b.hub.fleet.Instances() {
		names = append(names, i.Name)
	}
	var raw struct {
		Entries []struct{ T, M string }
		Size    struct{ Cols, Rows int }
	}
	require.NoError(t, json.Unmarshal([]byte(b.text("/internal/logs/raw")), &raw))
	require.NotZero(t, raw.Size.Cols)
	var text string
	require.NoError(t, json.Unmarshal([]byte(b.text("/internal/logs")), &text))
	shown := ""
	for _, e := range raw.Entries {
		require.NotEmpty(t, e.T)
		shown += e.M
	}
	for _, name := range names {
		require.Contains(t, shown, "["+name+"] ")
		require.Contains(t, text, " - ["+name+"] ")
	}

	reader := b.dial("reader")
	key := stream.Key{Tenant: job.DefaultTenant, Client: "reader"}
	require.Eventually(t, func() bool { return b.hub.streams.Connected(key) }, time.Minute, time.Millisecond)
	b.play([]exchange{{method: "PATCH", path: "/internal/logs/subscribe", body: `{"clientId": "reader", "enabled": true}`, status: 200}})
	for _, p := range []*pack{one, two} {
		require.Contains(t, p.last(), `"enabled": true`, "each instance is asked")
	}
	for n, name := range names {
		b.hub.logged(name, []byte(`{"type": "logs", "data": {"entries": [{"t": "1", "m": "Traceback:\n  File\n"}], "size": {"cols": 7, "rows": 7}}}`))
		want := `{"type": "logs", "data": {"entries": [{"t": "1", "m": "[` + names[n] + `] Traceback:\n[` + names[n] + `]   File\n"}], "size": null}}`
		require.Equal(t, want, reader.next().raw)
	}
	b.hub.logged(names[0], []byte(`{"type": "logs", "data": `))
	b.hub.logged(names[0], []byte(`[]`))
}

// FuzzLogMessage: whatever an instance says of its log, a client is sent JSON,
// or nothing.
func FuzzLogMessage(f *testing.F) {
	f.Add([]byte(`{"type": "logs", "data": {"entries": [{"t": "1", "m": "x\r\ny"}], "size": null}}`))
	f.Add([]byte(`{"data": {"entries": [1, {"m": "\ud800"}]}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, frame []byte) {
		var lines logLines
		for _, instance := range []string{"a", "b"} {
			if m := lines.message(instance, frame); m != nil {
				require.True(t, json.Valid(m), "%q", m)
			}
		}
	})
}
