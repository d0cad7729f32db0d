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
	j := newJob(NewRunner(Options{}), Record{Cover: true, Outputs: []Output{{}, {}}}, 0, nil, 0)
	require.True(t, j.files.sheet().Spoiler)
	require.True(t, j.words.previewOf(nil).Spoiler)
	require.True(t, j.files.attachment(Output{}).Spoiler)
	j.files.bare = true
	require.False(t, j.files.attachment(Output{}).Spoiler)
	require.True(t, j.files.attachment(Output{Verdict: Covered}).Spoiler, "moderation covers everywhere")
}
