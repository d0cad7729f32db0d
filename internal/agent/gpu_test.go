package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnGPUs(t *testing.T) {
	t.Parallel()
	list := make([]target, 2)
	require.NoError(t, onGPUs(list, nil))
	require.NoError(t, onGPUs(list, []string{"0", "GPU-1:a_b"}))
	require.Equal(t, []target{{gpu: "0"}, {gpu: "GPU-1:a_b"}}, list)
	require.ErrorContains(t, onGPUs(list, []string{"0"}), "one for each")
	require.ErrorIs(t, onGPUs(list, []string{"0", "a/b"}), errGPU)
	require.ErrorIs(t, onGPUs(list, []string{"0", ""}), errGPU)
}
