package logs

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/stream"
)

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
