package hub

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// The log panel shows the lines of all servers with their names.
func TestLogsOfAllInstances(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
		eventually(t, func() bool { return b.hub.streams.Connected(key) }, time.Minute, time.Millisecond)
		b.play([]exchange{{method: "PATCH", path: "/internal/logs/subscribe", body: `{"clientId": "reader", "enabled": true}`, status: 200}})
		for _, p := range []*pack{one, two} {
			require.Contains(t, p.last(), `"enabled": true`, "each instance is asked")
		}
		for n, name := range names {
			b.hub.logs.pass(name, []byte(`{"type": "logs", "data": {"entries": [{"t": "1", "m": "Traceback:\n  File\n"}], "size": {"cols": 7, "rows": 7}}}`))
			want := `{"type": "logs", "data": {"entries": [{"t": "1", "m": "[` + names[n] + `] Traceback:\n[` + names[n] + `]   File\n"}], "size": null}}`
			require.Equal(t, want, reader.next().raw)
		}
		b.hub.logs.pass(names[0], []byte(`{"type": "logs", "data": `))
		b.hub.logs.pass(names[0], []byte(`[]`))
	})
}
