package hub_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// API keys that the last version encrypted with the gossip key or with the file
// "secret" can still be opened. Nothing is encrypted that way any more.
func TestAPIKeysOfTheLastVersion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const fileSecret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
		b := newBench(t, 0, func(b *bench) {
			b.id.GossipKey = gossipKey
			require.NoError(t, os.WriteFile(filepath.Join(b.id.Data, "secret"), []byte(fileSecret+"\n"), 0o600))
		})
		for _, secret := range []string{gossipKey, fileSecret} {
			id := fmt.Sprintf("job %d", len(secret))
			b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q, "extra_data": {"auth_token_comfy_org": "new"}}`, picture(len(secret)), id))
			j := must(b.hub.Queue.Find(t.Context(), "default", id))(t)
			old := must(queue.NewVault([]byte(secret)))(t)
			require.NoError(t, b.hub.DB.Client().Set(t.Context(), b.hub.DB.Key("q", "secret", j.Key), must(old.Seal([]byte("old"), []byte(j.Key)))(t), 0).Err())
			require.Equal(t, "old", string(must(b.hub.Queue.Body(t.Context(), j.Key))(t).Secrets))
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
		storage := b.hub.Storage
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
			err := hub.New(b.id).Start(context.Background(), settings)
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
		require.Equal(t, 2, must(one.hub.Ring.Rotate(t.Context()))(t).Keys)
		require.NoError(t, two.hub.Ring.Refresh(t.Context()))
		for _, b := range []*bench{one, two} {
			b.gets(link)
			require.NoError(t, b.hub.Janitor.ExpireKeys(t.Context()))
			_, fresh := b.linkTo(fmt.Sprintf(`{"filename": %q}`, name))
			one.gets(fresh)
		}
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
		live := must(b.hub.Queue.Live(t.Context(), ""))(t)
		require.Len(t, live, 1)
		sealed := must(b.hub.DB.Client().Get(t.Context(), b.hub.DB.Key("q", "secret", live[0].Key)).Bytes())(t)
		_, err := stolen(t, "comfyhub api keys").Open(nil, nil, sealed, []byte(live[0].Key))
		require.Error(t, err)
		body := must(b.hub.Queue.Body(t.Context(), live[0].Key))(t)
		secrets := decoded[map[string]string](t, body.Secrets)
		require.Equal(t, "very secret", secrets["api_key_comfy_org"])
	})
}

// linkTo asks for a link to a file.
func (b *bench) linkTo(body string) (int, string) {
	b.t.Helper()
	status, answer := b.post("/hub/files", body)
	link := decoded[struct {
		URL     string
		Expires int64
	}](b.t, answer)
	return status, link.URL
}

func TestSignedLinks(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.tenant = "telegram:12345" }), func(t *testing.T, b *bench) {
		name := b.finished(b.submit(picture(0xff), "ann")).Outputs["2"].Images[0].Filename
		_, whole := b.get("/view?filename=" + name)
		status, link := b.linkTo(fmt.Sprintf(`{"filename": %q}`, name))
		require.Equal(t, http.StatusOK, status)
		require.True(t, strings.HasPrefix(link, "/hub/files/"+name+"?exp="), link)
		require.NotContains(t, link, "12345", "a link tells nobody whose it is")

		fetch := func(link string, header ...string) (*http.Response, string) {
			response := b.send(exchange{method: "GET", path: link, header: headers(header...)})
			_, body := read(t, response)
			return response, string(body)
		}
		// It works for anybody, even from a page of another site.
		b.tenant = "somebody else"
		response, body := fetch(link, "Sec-Fetch-Site", "cross-site")
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.Equal(t, string(whole), body)
		require.Equal(t, "image/png", response.Header.Get("Content-Type"))
		require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "inline; filename="+name, response.Header.Get("Content-Disposition"))
		response, body = fetch(link, "Range", "bytes=1-3")
		require.Equal(t, http.StatusPartialContent, response.StatusCode)
		require.Equal(t, "PNG", body)
		response, _ = fetch(link, "If-None-Match", response.Header.Get("Etag"))
		require.Equal(t, http.StatusNotModified, response.StatusCode)

		// Nobody gets a link to another tenant's file or to a file that does not exist.
		answered(b.linkTo(fmt.Sprintf(`{"filename": %q}`, name)))(t, http.StatusNotFound)
		b.tenant = "telegram:12345"
		answered(b.linkTo(fmt.Sprintf(`{"filename": %q, "type": "input"}`, name)))(t, http.StatusNotFound)

		// Links that were tampered with.
		parsed := must(url.Parse(link))(t)
		exp, sig := parsed.Query().Get("exp"), parsed.Query().Get("sig")
		other := b.finished(b.submit(picture(0xff00), "ann")).Outputs["2"].Images[0].Filename
		for _, forged := range []string{
			"/hub/files/" + name, "/hub/files/" + name + "?sig=" + sig, "/hub/files/" + name + "?exp=" + exp,
			"/hub/files/" + name + "?exp=9" + exp + "&sig=" + sig, "/hub/files/" + other + "?exp=" + exp + "&sig=" + sig,
			"/hub/files/" + name + "?exp=" + exp + "&sig=" + strings.ToLower(sig), "/hub/files/" + name + "?exp=" + exp + "&sig=%00",
		} {
			response, _ = fetch(forged)
			require.Equal(t, http.StatusForbidden, response.StatusCode, forged)
		}

		// A restart changes nothing. A link stops working when its time is up.
		b.stop()
		b.start()
		b.gets(link)
		_, brief := b.linkTo(fmt.Sprintf(`{"filename": %q, "expires_in": 1}`, name))
		eventually(t, func() bool {
			response, _ = fetch(brief)
			return response.StatusCode == http.StatusGone
		}, 30*time.Second, 50*time.Millisecond)
		long := must(b.hub.Links.Make(t.Context(), "telegram:12345", job.FileRef{Type: "output", Filename: name}, time.Now().AddDate(10, 0, 0)))(t)
		require.Contains(t, string(answered(b.get(api.LinkPath+long))(t, http.StatusForbidden)), "longer than links may")
	})
}

// paidServer is an instance with a class of paid nodes. It notes what it is given.
type paidServer struct {
	url  string
	mu   sync.Mutex
	seen []string // bodies of POST /prompt
}

// newPaidServer starts one that says whether the class Paid needs an API key.
func newPaidServer(t *testing.T, paid bool) *paidServer {
	t.Helper()
	v, err := pyjson.Parse(fmt.Appendf(nil, `{"input": {"required": {"image": ["IMAGE"]}}, "input_order": {"required": ["image"]},
		"output": ["IMAGE"], "output_is_list": [false], "output_name": ["IMAGE"], "name": "Paid", "display_name": "Paid", "description": "",
		"python_module": "comfy_api_nodes.paid", "category": "api node", "output_node": false, "api_node": %t}`, paid))
	require.NoError(t, err)
	class, _ := v.(*pyjson.Object)
	k := &paidServer{}
	k.url = simtest.Front(t, newInstance(t, sim.Config{CustomClasses: map[string]*pyjson.Object{"Paid": class}}).url(),
		func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
			if r.Method == http.MethodPost && r.URL.Path == "/prompt" {
				body, _ := io.ReadAll(r.Body)
				k.mu.Lock()
				k.seen = append(k.seen, string(body))
				k.mu.Unlock()
				r.Body = io.NopCloser(strings.NewReader(string(body)))
			}
			rest.ServeHTTP(w, r)
		}).URL
	return k
}

// given reports how many prompts with a text the instance has had.
func (k *paidServer) given(text string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, body := range k.seen {
		if strings.Contains(body, text) {
			n++
		}
	}
	return n
}

// paidPicture is a graph with a node that needs an API key.
func paidPicture(n int) string {
	return fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": %d}},
		"2": {"class_type": "Paid", "inputs": {"image": ["1", 0]}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "a"}}}`, n)
}

// A prompt that needs its API key goes only where secrets_to lets the key go, whatever other
// instances say about its nodes; a prompt that does not need it goes anywhere, without the key
// where that may not go. If nobody may have it, the prompt is refused, and the reason says what to
// do.
func TestSecretsGoWhereTheyMay(t *testing.T) {
	t.Parallel()
	const secret = `{"api_key_comfy_org": "very secret"}`
	own, other := newPaidServer(t, true), newPaidServer(t, false) // the other one turns the need off, if it is believed
	var names [2]string
	b := newBench(t, 0, func(b *bench) {
		b.settings.Instances = []string{own.url, other.url}
		for n, url := range b.settings.Instances {
			names[n], _ = fleet.StaticName(url)
		}
		b.settings.SecretsTo = []string{names[0]}
	})
	eventually(t, b.hub.Classes.Beginning.HasLooked, time.Minute, 5*time.Millisecond)
	for n := range 6 {
		b.finished(b.submitWith(paidPicture(n), secret))
	}
	require.Equal(t, 6, own.given("very secret"))
	require.Zero(t, other.given(`"Paid"`), "although it is idle")

	require.NoError(t, b.hub.Operator.Drain(t.Context(), names[0], 0))
	b.finished(b.submitWith(paidPicture(10), `{"api_key_comfy_org": null}`))
	b.finished(b.submitWith(picture(11), secret))
	require.Equal(t, 2, other.given(`"EmptyImage"`), "these do not need one")
	waits := b.submitWith(paidPicture(12), secret)
	text := b.posts("/hub/explain", fmt.Sprintf(`{"prompt_id": %q}`, waits))
	require.Contains(t, string(text), names[1]+`", "state": "idle", "can_run": false, "why": "it lacks leave to have the API keys of prompts (secrets_to in the hub's Caddyfile)`)
	require.NoError(t, b.hub.Operator.Resume(t.Context(), queue.StopInstance(names[0])))
	b.finished(waits)
	require.Zero(t, other.given("very secret"))
}

// If no instance that has a class may have API keys, a prompt that needs one is refused at once,
// and the error is the node's.
func TestSecretsOfNobody(t *testing.T) {
	t.Parallel()
	only := newPaidServer(t, true)
	b := newBench(t, 1, func(b *bench) {
		b.settings.Instances, b.settings.SecretsTo = []string{only.url}, []string{"gpu*"}
	})
	eventually(t, b.hub.Classes.Beginning.HasLooked, time.Minute, 5*time.Millisecond)
	answer := answered(b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "extra_data": {"auth_token_comfy_org": "very secret"}}`, paidPicture(1))))(t, http.StatusBadRequest)
	refused := nodeErrors(t, answer)
	require.Len(t, refused["2"].Errors, 1, string(answer))
	require.Contains(t, refused["2"].Errors[0].Details, "secrets_to")
	b.finished(b.submitWith(paidPicture(2), `{}`))
	require.Zero(t, only.given("very secret"))
	var warned bool
	for _, f := range b.hub.Checkup.Findings(t.Context()) {
		warned = warned || f.Level == config.LevelWarning && strings.Contains(f.Says, "secrets_to names gpu*")
	}
	require.True(t, warned)
}
