package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

// A hub announces what all its servers do, and what it does itself; and what is true now.
func TestFeaturesOfTheFleet(t *testing.T) {
	const newest = `{"supports_preview_metadata": true, "supports_model_type_tags": true, "max_upload_size": 104857600, ` +
		`"extension": {"manager": {"supports_v4": true}}, "node_replacements": true, "assets": false%s}`
	flagged := func(flags ...string) sim.Config {
		return sim.Config{Version: "0.33.0", FeatureFlags: append(flags, "comfy_api_base_url=https://evil.example", "supports_more=true")}
	}
	one := flagged("show_signin_button=true", "partner_run_gate_enabled=false", "enable_telemetry=true")
	other := flagged("show_signin_button=true", "partner_run_gate_enabled=true")
	inBench(t, benchOf(0, serving(one, other, sim.Config{Version: "0.33.0"})), func(t *testing.T, b *bench) {
		announced := func(want string) {
			t.Helper()
			eventually(t, func() bool { return string(b.gets("/api/features")) == want }, 10*time.Second, 20*time.Millisecond, want)
			c := b.dial("c" + fmt.Sprint(len(want)))
			require.NoError(t, c.conn.Write(t.Context(), websocket.MessageText, []byte(`{"type": "feature_flags", "data": {}}`)))
			require.Equal(t, `{"type": "feature_flags", "data": `+want+`}`, c.next().raw)
		}
		announced(fmt.Sprintf(newest, ""))
		b.instances[2].die()
		announced(fmt.Sprintf(newest, `, "show_signin_button": true`))
		b.instances[1].die()
		announced(fmt.Sprintf(newest, `, "enable_telemetry": true, "partner_run_gate_enabled": false, "show_signin_button": true`))
		b.instances[0].die()
		announced(`{"supports_preview_metadata": true, "max_upload_size": 104857600}`)
	})
}
