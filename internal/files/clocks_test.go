package files

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// If Redis's clock is two months ahead of the hub's, the hub still remembers which output has which
// name, and gives files the times that Redis has.
func TestNamesAreKeptDespiteSkew(t *testing.T) {
	t.Parallel()
	const skew = 60 * 24 * time.Hour
	server := miniredis.RunT(t)
	server.SetTime(time.Now().Add(skew))
	db := redistest.Open(t, "redis://"+server.Addr())
	must(db.Now(t.Context()))
	storage := must(OpenStorage(t.Context(), t.TempDir()))
	t.Cleanup(func() { require.NoError(t, storage.Close()) })
	s := New(db, storage, Options{SpoolDir: t.TempDir()})
	source := made("gpu", "x_00001_.png", "1")
	first := must(s.AllotOutputs(t.Context(), tenant, []Source{source}))
	require.Equal(t, first, must(s.AllotOutputs(t.Context(), tenant, []Source{source})))
	require.WithinDuration(t, time.Now().Add(skew), must(s.Resolve(t.Context(), tenant, first[0])).Created, time.Minute)
}
