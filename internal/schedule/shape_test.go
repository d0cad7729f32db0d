package schedule_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/schedule"
)

// FuzzDecodeStructure reads what another version may have stored.
func FuzzDecodeStructure(f *testing.F) {
	for _, text := range []string{"", "a:b:12", "a:b:1e15", "a:b:NaN", "a:b:-1", ":b:1", "a:b", "a:b:1:2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := schedule.DecodeStructure(text)
		if !ok {
			require.Zero(t, s)
			return
		}
		again, ok := schedule.DecodeStructure(s.Encode())
		require.True(t, ok)
		require.InEpsilon(t, s.Work, again.Work, 1e-4)
		s.Work, again.Work = 0, 0
		require.Equal(t, s, again)
	})
}
