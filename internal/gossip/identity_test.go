package gossip

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIdentityLasts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "state", "box.key")
	// Two processes with the same name start at the same time for the first time.
	keys := make([]string, 8)
	var work sync.WaitGroup
	for n := range keys {
		work.Go(func() {
			id, err := LoadIdentity(file)
			if err == nil {
				keys[n] = id.Key()
			}
		})
	}
	work.Wait()
	require.NotEmpty(t, keys[0])
	for _, k := range keys {
		require.Equal(t, keys[0], k)
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	rest, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, rest, 1, "no drafts are left")

	other, err := LoadIdentity(filepath.Join(filepath.Dir(file), "other.key"))
	require.NoError(t, err)
	require.NotEqual(t, keys[0], other.Key())
	require.NotEqual(t, Fingerprint(keys[0]), Fingerprint(other.Key()))
	require.Equal(t, "none", Fingerprint(Identity{}.Key()))
}

// A key that cannot be read must not be replaced: hubs would take the machine for
// another one.
func TestIdentityIsNeverReplaced(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty": "", "cut off": "-----BEGIN PRIVATE KEY-----\nMC4CAQAw", "another kind": "-----BEGIN CERTIFICATE-----\nMC4=\n-----END CERTIFICATE-----\n",
		"garbage in PEM": "-----BEGIN PRIVATE KEY-----\nMC4=\n-----END PRIVATE KEY-----\n",
	} {
		file := filepath.Join(t.TempDir(), "key")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := LoadIdentity(file)
		require.ErrorContains(t, err, "agent key", name)
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, text, string(after))
	}
	if runtime.GOOS == "windows" {
		return
	}
	file := filepath.Join(t.TempDir(), "key")
	_, err := LoadIdentity(file)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(file, 0o640))
	_, err = LoadIdentity(file)
	require.ErrorContains(t, err, "others may read it")
}
