package system

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/stretchr/testify/require"
)

// LosePower makes the data of a hub that was killed what a machine has that has lost power: nothing
// there was synced, so the ends of files are lost, or are zeros, or something else.
func (h *Hub) LosePower() {
	t := h.w.t
	for _, pattern := range []string{"hub-id-*", "storage-mark", "notes/*/*"} {
		names, err := filepath.Glob(filepath.Join(h.data(), pattern))
		require.NoError(t, err)
		for _, name := range names {
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			h.cuts++
			require.NoError(t, os.WriteFile(name, torn(content, h.cuts), 0o600))
		}
	}
}

// torn is what a power cut leaves of a file that was not synced; there are several ways.
func torn(content []byte, way int) []byte {
	kept, lost := content[:len(content)-len(content)/3], len(content)/3
	switch way % 5 {
	case 0:
		return nil
	case 1:
		return kept
	case 2:
		return slices.Concat(kept, make([]byte, lost))
	case 3:
		return slices.Concat(kept, slices.Repeat([]byte{0xA5, '\n', 'f'}, lost/3+1))
	}
	return content
}

// BreakData makes nothing readable and nothing writable in a hub's data folder: where a file was is a
// folder, and where a folder was is a file. The function it returns ends that.
func (h *Hub) BreakData() (repair func()) {
	t, data, whole := h.w.t, h.data(), h.data()+".whole"
	entries, err := os.ReadDir(data)
	require.NoError(t, err)
	require.NoError(t, os.Rename(data, whole))
	require.NoError(t, os.Mkdir(data, 0o700))
	for _, e := range entries {
		if at := filepath.Join(data, e.Name()); e.IsDir() {
			require.NoError(t, os.WriteFile(at, nil, 0o600))
		} else {
			require.NoError(t, os.Mkdir(at, 0o700))
		}
	}
	return func() {
		require.NoError(t, os.Rename(data, data+".broken"))
		require.NoError(t, os.Rename(whole, data))
	}
}
