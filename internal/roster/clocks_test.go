package roster

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Hubs note when they had an instance by Redis's clock, and a hub that starts believes that,
// though by its own clock it is two days ago, or yet to come.
func TestInstancesAreAsOldAsRedisSays(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			server := miniredis.RunT(t)
			server.SetTime(time.Now().Add(skew))
			db, dir := redistest.Open(t, "redis://"+server.Addr()), t.TempDir()
			now, err := db.Now(t.Context())
			require.NoError(t, err)
			one := open(t, db, dir)
			one.Keep("gpu", comfyui.Version{}, hash, []byte(body))
			one.look(t, "gpu")
			var stored entry
			require.NoError(t, json.Unmarshal([]byte(server.HGet(one.key(), "gpu")), &stored))
			require.WithinDuration(t, now, time.UnixMilli(stored.At), time.Minute)
			known := open(t, db, dir).look(t)
			require.WithinDuration(t, time.Now(), known["gpu"].Seen, time.Minute)
			require.True(t, known["gpu"].Elsewhere)
		})
	}
}
