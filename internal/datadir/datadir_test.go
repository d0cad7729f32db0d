package datadir

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func dir(path string) Dir {
	return Dir{Path: path, Log: func() *slog.Logger { return slog.New(slog.DiscardHandler) }}
}

// Two hubs that share a data folder are two.
func TestIDsOnOneFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	one := dir(folder).ID("127.0.0.1:0")
	two := dir(folder).ID("localhost:0")
	require.NotEqual(t, one, two)
	again := dir(folder).ID("127.0.0.1:0")
	require.Equal(t, one, again)
}

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
		folder, storage := t.TempDir(), t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(folder, markFile), []byte(strings.Replace(left, "LOCATION", storage, 1)), 0o600))
		require.Equal(t, expected, dir(folder).Mark(storage), "%q", left)
	}
}
