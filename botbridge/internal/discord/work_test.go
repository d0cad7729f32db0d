package discord

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
)

func TestWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakediscord.Options{})
	require.NoError(t, r.d.Work(r.ctx, platform.Chat{ID: channel}, platform.Photo))
	require.Equal(t, 1, r.fake.Calls("POST /channels/{channel_id}/typing"))
	require.ErrorIs(t, r.d.Work(r.ctx, platform.Chat{ID: "../x"}, platform.Photo), platform.ErrRefused, "an id is no path")
}
