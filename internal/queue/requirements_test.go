package queue

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeptRequirementsAreBounded(t *testing.T) {
	t.Parallel()
	var r requirements
	r.keep("small", []byte("needs"))
	known, unknown := r.of([]string{"small", "other"})
	require.Equal(t, map[string][]byte{"small": []byte("needs")}, known)
	require.Equal(t, []string{"other"}, unknown)
	for n := range 20 {
		r.keep("class"+strconv.Itoa(n), make([]byte, keptRequirements/10))
		require.LessOrEqual(t, r.bytes, keptRequirements)
	}
	r.keep("too large", make([]byte, keptRequirements))
	known, unknown = r.of([]string{"class19", "too large"})
	require.Len(t, known, 1, "the last one that fits")
	require.Equal(t, []string{"too large"}, unknown)
}
