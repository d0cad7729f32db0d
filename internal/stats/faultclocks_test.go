package stats

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// A fault is as old as it is, whatever Redis's clock shows.
func TestFaultsAreAsOldAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			server := miniredis.RunT(t)
			server.SetTime(time.Now().Add(skew))
			db := redistest.Open(t, "redis://"+server.Addr())
			_, err := db.Now(t.Context())
			require.NoError(t, err)
			f := NewFaults(db)
			f.Note(Fault{Kind: Sick, Instance: "gpu", Reason: "it hangs"})
			require.NoError(t, f.Flush(t.Context()))
			all := list(t, f)
			require.Len(t, all, 1)
			require.WithinDuration(t, time.Now(), time.UnixMilli(all[0].At), time.Minute)
			require.WithinDuration(t, time.Now(), time.UnixMilli(f.Last("gpu").At), time.Minute)
		})
	}
}
