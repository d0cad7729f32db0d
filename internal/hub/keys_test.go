package hub

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/queue"
)

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
			old := must(queue.NewVault([]byte(secret)))(t)
			require.NoError(t, b.hub.db.Client().Set(t.Context(), b.hub.db.Key("q", "secret", j.Key), must(old.Seal([]byte("old"), []byte(j.Key)))(t), 0).Err())
			require.Equal(t, "old", string(must(b.hub.queue.Body(t.Context(), j.Key))(t).Secrets))
		}
	})
}

// No request reaches the file with the keys. In a folder, only the hub's user can read it.
func TestKeysAreNobodysFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) {
			b.id.Storage = t.TempDir()
			require.NoError(t, os.Chmod(b.id.Storage, 0o755)) // an operator may set it so
		})
		entries := must(os.ReadDir(filepath.Join(b.id.Storage, "comfyhub-keys")))(t)
		require.Len(t, entries, 1)
		path := filepath.Join(b.id.Storage, "comfyhub-keys", entries[0].Name())
		key := must(os.ReadFile(path))(t)
		if runtime.GOOS != "windows" {
			require.Equal(t, fs.FileMode(0o600), must(os.Stat(path))(t).Mode().Perm())
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
		require.Equal(t, key, must(os.ReadFile(path))(t))
	})
}

// A ring that cannot be read keeps the hub from starting, with a clear error, and stays as it is.
func TestKeysThatCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const secret = "what only the operator knows"
		b := newBench(t, 1, func(b *bench) { b.settings.Secrets = []string{secret} })
		name := b.finished(b.submit(picture(0xff), "ann")).Outputs["2"].Images[0].Filename
		_, link := b.linkTo(fmt.Sprintf(`{"filename": %q}`, name))
		matches := must(filepath.Glob(filepath.Join(b.id.Data, "files", "comfyhub-keys", "*")))(t)
		require.Len(t, matches, 1)
		good := must(os.ReadFile(matches[0]))(t)
		require.Contains(t, string(good), `"sealed"`)

		// A reload with a different secret is refused, and the hub goes on.
		settings := b.settings
		settings.Secrets = []string{"a secret that is another one"}
		require.ErrorContains(t, b.hub.Start(t.Context(), settings), "sealed under another secret")
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		b.gets(link)

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
			require.Equal(t, tc.body, must(os.ReadFile(matches[0]))(t))
			require.Equal(t, matches, must(filepath.Glob(filepath.Join(filepath.Dir(matches[0]), "*")))(t))
		}
		require.NoError(t, os.WriteFile(matches[0], good, 0o600))
		b.start()
		b.gets(link)
	})
}

// A rotation breaks no links, and both hubs know the new key.
func TestRotateKeys(t *testing.T) {
	inPair(t, 1, 0, func(t *testing.T, one, two *bench) {
		name := one.finished(one.submit(picture(0xff), "ann")).Outputs["2"].Images[0].Filename
		_, link := one.linkTo(fmt.Sprintf(`{"filename": %q}`, name))
		require.Equal(t, 2, must(one.hub.Operator().RotateKeys(t.Context()))(t).Keys)
		require.NoError(t, two.hub.ring.Refresh(t.Context()))
		for _, b := range []*bench{one, two} {
			b.gets(link)
			require.NoError(t, b.hub.janitor.ExpireKeys(t.Context()))
			_, fresh := b.linkTo(fmt.Sprintf(`{"filename": %q}`, name))
			one.gets(fresh)
		}
		_, err := New(one.id).Operator().RotateKeys(t.Context())
		require.ErrorIs(t, err, config.ErrNotStarted)
	})
}

// gossipKey is the key that a thief of a GPU machine has.
const gossipKey = "the key of the gossip, on every GPU machine"

// stolen is the cipher for a purpose as it was once derived from the gossip key.
func stolen(t *testing.T, purpose string) cipher.AEAD {
	t.Helper()
	key := must(hkdf.Key(sha256.New, []byte(gossipKey), nil, purpose, 32))(t)
	block := must(aes.NewCipher(key))(t)
	return must(cipher.NewGCMWithRandomNonce(block))(t)
}

// The gossip key does not let anybody make a link to a tenant's file.
func TestGossipKeyMakesNoLinks(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.id.GossipKey, b.tenant = gossipKey, "ann" }), func(t *testing.T, b *bench) {
		name := b.finished(b.submit(picture(0xff), "ann")).Outputs["2"].Images[0].Filename
		exp := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
		sig := stolen(t, "comfyhub signed links").Seal(nil, nil, []byte(`{"t": "ann", "y": "output", "s": ""}`), []byte(exp+":"+name))
		query := url.Values{"exp": {exp}, "sig": {base64.RawURLEncoding.EncodeToString(sig)}}
		b.tenant = "bob"
		answered(b.get("/hub/files/"+name+"?"+query.Encode()))(t, http.StatusForbidden)
	})
}

// The gossip key and a copy of Redis do not let anybody read API keys.
func TestGossipKeyOpensNoAPIKeys(t *testing.T) {
	inBench(t, benchOf(0, func(b *bench) { b.id.GossipKey = gossipKey }), func(t *testing.T, b *bench) {
		b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "extra_data": {"api_key_comfy_org": "very secret"}}`, picture(1)))
		live := must(b.hub.queue.Live(t.Context(), ""))(t)
		require.Len(t, live, 1)
		sealed := must(b.hub.db.Client().Get(t.Context(), b.hub.db.Key("q", "secret", live[0].Key)).Bytes())(t)
		_, err := stolen(t, "comfyhub api keys").Open(nil, nil, sealed, []byte(live[0].Key))
		require.Error(t, err)
		body := must(b.hub.queue.Body(t.Context(), live[0].Key))(t)
		secrets := decoded[map[string]string](t, body.Secrets)
		require.Equal(t, "very secret", secrets["api_key_comfy_org"])
	})
}
