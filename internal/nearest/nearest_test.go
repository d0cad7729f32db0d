package nearest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	t.Parallel()
	known := []string{"studio-a", "studio-b", "attic", "gpu"}
	for word, want := range map[string]string{
		"studioa": "studio-a", "STUDIO-B": "studio-b", "atitc": "attic", "gqu": "gpu", "cellar": "", "": "", "x": "", "stduio-a": "studio-a",
		strings.Repeat("a", 1000): "",
	} {
		require.Equal(t, want, Of(word, known), word)
	}
	require.Empty(t, Of("a", nil))
}
