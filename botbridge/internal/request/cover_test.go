//go:build unix

package request

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// What its group wants covered is covered there, in every form, and not where somebody
// looks at it alone.
func TestCover(t *testing.T) {
	t.Parallel()
	p := &silent{limits: platform.Limits{Photo: 1 << 20, File: 1 << 20}}
	require.Equal(t, Done, settle(t, ledStore(t), p, func(r *Record) { r.Cover = true }))
	require.True(t, p.sends[0].Files[0].Spoiler)
	j := &job{rec: Record{Cover: true, Outputs: []Output{{}, {}}}}
	require.True(t, j.sheet().Spoiler)
	require.True(t, j.previewOf(nil).Spoiler)
	require.True(t, j.attachment(Output{}).Spoiler)
	j.bare = true
	require.False(t, j.attachment(Output{}).Spoiler)
	require.True(t, j.attachment(Output{Verdict: Covered}).Spoiler, "moderation covers everywhere")
}
