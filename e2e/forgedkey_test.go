package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Somebody who can write to Redis, such as a custom node beside one without a password, can
// neither write itself the key of an operator nor bring back one that was revoked.
func TestForgedKeyInRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server)
	f := newFleet(t, server.URL())
	f.Env = append(f.Env, "COMFYHUB_SITE=keys required")
	f.startHub()
	const all, version = "{comfyhub}:g:apikeys", "{comfyhub}:g:apikeys:version"
	made := func(query string) (secret, value string) {
		t.Helper()
		code, body := f.admin(http.MethodPost, "/comfyhub/keys?"+query)
		require.True(t, code >= 200 && code < 300, string(body))
		var key struct{ Name, Secret string }
		require.NoError(t, json.Unmarshal(body, &key))
		require.NotEmpty(t, key.Secret)
		value, err := c.HGet(t.Context(), all, key.Name).Result()
		require.NoError(t, err)
		return key.Secret, value
	}
	status := func(method, path, secret string) int {
		t.Helper()
		code, _ := call(t, method, f.URL(path), nil, bearer(secret), "")
		return code
	}
	reader, weak := made("name=reader&scope=read")
	gone, old := made("name=gone&scope=admin")
	_, strong := made("name=root&scope=admin")
	require.Equal(t, http.StatusOK, status(http.MethodPost, "/hub/resume", gone))
	code, body := f.admin(http.MethodDelete, "/comfyhub/keys?name=gone")
	require.Equal(t, http.StatusOK, code, string(body))
	require.Equal(t, http.StatusUnauthorized, status(http.MethodGet, "/queue", gone))

	// The operator sees that somebody has tried, which also shows that the hub has looked.
	tries := 0
	put := func(name, value string) {
		t.Helper()
		tries++
		require.NoError(t, c.HSet(t.Context(), all, name, value).Err())
		require.NoError(t, c.Set(t.Context(), version, "forged "+strconv.Itoa(tries), 0).Err())
		f.eventually(func() bool {
			_, body := f.admin(http.MethodGet, "/comfyhub/check")
			return strings.Contains(string(body), `\"`+name+`\" (`)
		}, "the check names what is refused")
	}
	mark := regexp.MustCompile(`,"mark":"[^"]*"`)
	admin := strings.NewReplacer(`["read"]`, `["admin"]`, `"reader"`, `"mallory"`)
	hash := regexp.MustCompile(`"hash":"[0-9a-f]*"`)
	require.NoError(t, c.HDel(t.Context(), all, "reader").Err())
	for _, forged := range []struct{ name, value, secret string }{
		{"mallory", admin.Replace(mark.ReplaceAllString(weak, "")), reader},                    // as the last version stored one
		{"mallory-2", strings.ReplaceAll(admin.Replace(weak), "mallory", "mallory-2"), reader}, // under another's mark
		{"root", hash.ReplaceAllString(strong, hash.FindString(weak)), reader},                 // an operator's, of another secret
		{"reader", strings.Replace(weak, `["read"]`, `["admin"]`, 1), reader},                  // more than it may
		{"gone", old, gone}, // revoked
	} {
		put(forged.name, forged.value)
		require.Equal(t, http.StatusUnauthorized, status(http.MethodPost, "/hub/pause", forged.secret), forged.name)
	}

	// The real one again, as the hub has made it.
	require.NoError(t, c.HSet(t.Context(), all, "reader", weak).Err())
	require.NoError(t, c.Set(t.Context(), version, "as before", 0).Err())
	require.Eventually(t, func() bool { return status(http.MethodGet, "/queue", reader) == http.StatusOK }, patience, 50*time.Millisecond)
	require.NotEqual(t, http.StatusOK, status(http.MethodPost, "/hub/pause", reader))
}
