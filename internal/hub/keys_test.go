package hub

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// Hubs that start for the first time at the same moment end up with one ring, in a
// folder as in a bucket.
func TestHubsRaceForTheFirstKey(t *testing.T) {
	for name, location := range map[string]string{"folder": t.TempDir(), "bucket": bucket(t)} {
		rings := make([]*keyring.Ring, 4)
		var wait sync.WaitGroup
		for n := range rings {
			storage, err := files.OpenStorage(t.Context(), location)
			require.NoError(t, err)
			t.Cleanup(func() { _ = storage.Close() })
			wait.Go(func() {
				var err error
				rings[n], err = keyring.Open(t.Context(), keyring.Options{Store: storage.KeyStore()})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		wait.Wait()
		for _, from := range rings {
			sealed, err := from.Sealer(keyring.APIKeys).Seal([]byte("value"), nil)
			require.NoError(t, err)
			for _, to := range rings {
				value, err := to.Sealer(keyring.APIKeys).Open(t.Context(), sealed, nil)
				require.NoError(t, err, name)
				require.Equal(t, "value", string(value))
			}
		}
	}
}

// API keys that the last version encrypted with the gossip key or with the file
// "secret" can still be opened. Nothing is encrypted that way any more.
func TestAPIKeysOfTheLastVersion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const fileSecret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
		b := newBench(t, 0, func(b *bench) {
			b.id.GossipKey = gossipKey
			require.NoError(t, os.WriteFile(filepath.Join(b.id.Data, secretFile), []byte(fileSecret+"\n"), 0o600))
		})
		for _, secret := range []string{gossipKey, fileSecret} {
			id := fmt.Sprintf("job %d", len(secret))
			status, answer := b.post("/prompt", fmt.Sprintf(
				`{"prompt": %s, "prompt_id": %q, "extra_data": {"auth_token_comfy_org": "new"}}`, picture(len(secret)), id))
			require.Equal(t, http.StatusOK, status, string(answer))
			j, err := b.hub.queue.Find(t.Context(), "", id)
			if err != nil {
				j, err = b.hub.queue.Find(t.Context(), "default", id)
			}
			require.NoError(t, err)
			old, err := queue.NewVault([]byte(secret))
			require.NoError(t, err)
			sealed, err := old.Seal([]byte("old"), []byte(j.Key))
			require.NoError(t, err)
			require.NoError(t, b.hub.db.Client().Set(t.Context(), b.hub.db.Key("q", "secret", j.Key), sealed, 0).Err())
			body, err := b.hub.queue.Body(t.Context(), j.Key)
			require.NoError(t, err)
			require.Equal(t, "old", string(body.Secrets))
		}
	})
}

// No request reaches the file with the keys. In a folder, only the hub's user can
// read it.
func TestKeysAreNobodysFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) {
			b.id.Storage = t.TempDir()
			require.NoError(t, os.Chmod(b.id.Storage, 0o755)) // an operator may set it so
		})
		entries, err := os.ReadDir(filepath.Join(b.id.Storage, "comfyhub-keys"))
		require.NoError(t, err)
		require.Len(t, entries, 1)
		path := filepath.Join(b.id.Storage, "comfyhub-keys", entries[0].Name())
		key, err := os.ReadFile(path)
		require.NoError(t, err)
		if runtime.GOOS != "windows" {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
		}
		name := "comfyhub-keys/" + entries[0].Name()
		up := strings.Repeat("../", 6) + name
		encoded := strings.ReplaceAll(up, "/", "%2F")
		for _, path := range []string{
			"/view?filename=" + name, "/view?filename=" + up, "/view?filename=" + entries[0].Name() + "&subfolder=comfyhub-keys",
			"/view?filename=" + entries[0].Name() + "&subfolder=../../comfyhub-keys&type=input",
			"/userdata/" + encoded, "/userdata/" + strings.ReplaceAll(name, "/", "%2F"), "/userdata/..%2F..%2F" + encoded,
			"/userdata?dir=..%2F..%2F..%2Fcomfyhub-keys&recurse=true", "/v2/userdata?path=../../../comfyhub-keys",
			"/hub/files/" + entries[0].Name(), "/api/etn/image/" + encoded, "/" + name, "/" + up,
			"/internal/files/output", "/internal/files/input",
		} {
			_, body := b.get(path)
			require.NotContains(t, string(body), strings.TrimSpace(string(key)), path)
			require.NotContains(t, string(body), entries[0].Name()+`"`, path)
		}
		b.post("/userdata/..%2F..%2F..%2Fcomfyhub-keys%2F"+entries[0].Name()+"?overwrite=true", "x")
		b.post("/userdata/a.json/move/..%2F..%2F..%2Fcomfyhub-keys%2F"+entries[0].Name()+"?overwrite=true", "")

		// No path, however it is written, makes the storage reveal anything.
		storage := b.hub.storage
		for _, key := range []string{name, "/" + name, "./" + name, "user/../" + name, "COMFYHUB-KEYS/x", "a\\..\\comfyhub-keys\\x", "comfyhub-keys"} {
			_, err := storage.Open(t.Context(), key, 0, -1)
			require.ErrorIs(t, err, files.ErrGone, key)
			_, err = storage.Stat(t.Context(), key)
			require.ErrorIs(t, err, files.ErrGone, key)
			_, err = storage.Write(t.Context(), key, strings.NewReader("x"))
			require.ErrorIs(t, err, files.ErrGone, key)
			_, err = storage.Create(t.Context(), key, strings.NewReader("x"))
			require.ErrorIs(t, err, files.ErrGone, key)
			require.ErrorIs(t, storage.Delete(t.Context(), key), files.ErrGone, key)
		}
		require.NoError(t, storage.List(t.Context(), "", func(b files.Blob) error {
			require.NotContains(t, b.Key, "comfyhub-keys")
			return nil
		}))
		left, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, key, left)
	})
}

// A ring that cannot be read keeps the hub from starting, with a clear error, and
// stays as it is.
func TestKeysThatCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const secret = "what only the operator knows"
		b := newBench(t, 1, func(b *bench) { b.settings.Secrets = []string{secret} })
		name := b.finished(b.submit(picture(0xff), "ann")).Outputs["2"].Images[0].Filename
		_, link := b.linkTo(fmt.Sprintf(`{"filename": %q}`, name))
		matches, err := filepath.Glob(filepath.Join(b.id.Data, "files", "comfyhub-keys", "*"))
		require.NoError(t, err)
		require.Len(t, matches, 1)
		good, err := os.ReadFile(matches[0])
		require.NoError(t, err)
		require.Contains(t, string(good), `"sealed"`)

		// A reload with a different secret is refused, and the hub goes on.
		settings := b.settings
		settings.Secrets = []string{"a secret that is another one"}
		require.ErrorContains(t, b.hub.Start(t.Context(), settings), "sealed under another secret")
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		status, _ := b.get(link)
		require.Equal(t, http.StatusOK, status)

		b.stop()
		for _, tc := range []struct {
			secrets []string
			body    []byte
			want    string
		}{
			{nil, good, "give the hub the secret that it had before"},
			{settings.Secrets, good, "give the hub the secret that it had before"},
			{b.settings.Secrets, good[:len(good)/2], "restore comfyhub-keys/"},
			{b.settings.Secrets, bytes.Replace(good, []byte(`"sealed":"`), []byte(`"sealed":"AAAA`), 1), "restore comfyhub-keys/"},
			{[]string{"short"}, good, "too short"},
		} {
			require.NoError(t, os.WriteFile(matches[0], tc.body, 0o600))
			settings.Secrets = tc.secrets
			err := New(b.id).Start(context.Background(), settings)
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), secret)
			left, err := os.ReadFile(matches[0])
			require.NoError(t, err)
			require.Equal(t, tc.body, left)
			all, err := filepath.Glob(filepath.Join(filepath.Dir(matches[0]), "*"))
			require.NoError(t, err)
			require.Equal(t, matches, all)
		}
		require.NoError(t, os.WriteFile(matches[0], good, 0o600))
		b.start()
		status, _ = b.get(link)
		require.Equal(t, http.StatusOK, status)
	})
}

// A rotation breaks no links, and both hubs know the new key.
func TestRotateKeys(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one, two := newPair(t, 1, 0)
		name := one.finished(one.submit(picture(0xff), "ann")).Outputs["2"].Images[0].Filename
		_, link := one.linkTo(fmt.Sprintf(`{"filename": %q}`, name))
		rotation, err := one.hub.Operator().RotateKeys(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, rotation.Keys)
		require.NoError(t, two.hub.ring.Refresh(t.Context()))
		for _, b := range []*bench{one, two} {
			status, _ := b.get(link)
			require.Equal(t, http.StatusOK, status)
			require.NoError(t, b.hub.janitor.expireKeys(t.Context()))
			_, fresh := b.linkTo(fmt.Sprintf(`{"filename": %q}`, name))
			status, _ = one.get(fresh)
			require.Equal(t, http.StatusOK, status)
		}
		_, err = New(one.id).Operator().RotateKeys(t.Context())
		require.ErrorIs(t, err, ErrNotStarted)
	})
}
