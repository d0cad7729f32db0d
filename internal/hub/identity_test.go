package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
)

// A power cut may leave anything of an id. The hub gets another, which then lasts.
func TestTornID(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "id")
	for _, left := range []string{"", "0123", "0123456789\x00\x00\x00\x00\x00\x00", "0123456789zzzzzz"} {
		require.NoError(t, os.WriteFile(path, []byte(left), 0o600))
		id, err := lasting(path, 8)
		require.NoError(t, err)
		require.Regexp(t, `^[0-9a-f]{16}$`, id)
		again, err := lasting(path, 8)
		require.NoError(t, err)
		require.Equal(t, id, again)
	}
}

// A hub that took a torn mark for the storage's would never serve again.
func TestTornMark(t *testing.T) {
	t.Parallel()
	const mark = "8f0c3f52-9b3f-4c0e-8a55-0d9f6a0c1b2d"
	for left, expected := range map[string]string{
		"": "", "LOCATION": "", "LOCATION\n": "", "LOCATION\n" + mark[:20]: "", "LOCATION\n" + mark: "", "LOCATION\n\x00\x00\x00\n": "",
		"elsewhere\n" + mark + "\n": "", "LOCATION\n" + mark + "\n": mark,
	} {
		id := config.Identity{Data: t.TempDir(), Storage: t.TempDir()}
		h := New(id)
		var err error
		h.storage, err = files.OpenStorage(t.Context(), id.Storage)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(h.markPath(), []byte(strings.Replace(left, "LOCATION", id.Storage, 1)), 0o600))
		h.recallMark()
		require.Equal(t, expected, h.storage.Health().Mark(), "%q", left)
	}
}
