package hub

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// gossipKey is the key that a thief of a GPU machine has.
const gossipKey = "the key of the gossip, on every GPU machine"

// stolen is the cipher for a purpose as it was once derived from the gossip key.
func stolen(t *testing.T, purpose string) cipher.AEAD {
	t.Helper()
	key, err := hkdf.Key(sha256.New, []byte(gossipKey), nil, purpose, 32)
	require.NoError(t, err)
	block, err := aes.NewCipher(key)
	require.NoError(t, err)
	aead, err := cipher.NewGCMWithRandomNonce(block)
	require.NoError(t, err)
	return aead
}

// The gossip key does not let anybody make a link to a tenant's file.
func TestGossipKeyMakesNoLinks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) { b.id.GossipKey, b.tenant = gossipKey, "ann" })
		name := b.finished(b.submit(picture(0xff), "ann")).Outputs["2"].Images[0].Filename
		exp := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
		sig := stolen(t, "comfyhub signed links").Seal(nil, nil, []byte(`{"t": "ann", "y": "output", "s": ""}`), []byte(exp+":"+name))
		query := url.Values{"exp": {exp}, "sig": {base64.RawURLEncoding.EncodeToString(sig)}}
		b.tenant = "bob"
		status, body := b.get("/hub/files/" + name + "?" + query.Encode())
		require.Equal(t, http.StatusForbidden, status, string(body))
	})
}

// The gossip key and a copy of Redis do not let anybody read API keys.
func TestGossipKeyOpensNoAPIKeys(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) { b.id.GossipKey = gossipKey })
		status, answer := b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "extra_data": {"api_key_comfy_org": "very secret"}}`, picture(1)))
		require.Equal(t, http.StatusOK, status, string(answer))
		live, err := b.hub.queue.Live(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, live, 1)
		sealed, err := b.hub.db.Client().Get(t.Context(), b.hub.db.Key("q", "secret", live[0].Key)).Bytes()
		require.NoError(t, err)
		_, err = stolen(t, "comfyhub api keys").Open(nil, nil, sealed, []byte(live[0].Key))
		require.Error(t, err)
		body, err := b.hub.queue.Body(t.Context(), live[0].Key)
		require.NoError(t, err)
		var secrets map[string]string
		require.NoError(t, json.Unmarshal(body.Secrets, &secrets))
		require.Equal(t, "very secret", secrets["api_key_comfy_org"])
	})
}
