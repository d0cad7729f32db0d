package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Somebody who can write to Redis can neither take the name of a machine, by another record
// or by none, nor let one in through a tunnel, nor bring back a token that was revoked.
func TestForgedMachinesInRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server)
	f := newFleet(t, server.URL())
	f.Env = append(f.Env, "COMFYHUB_GOSSIP_KEY=the key of the whole fleet")
	f.startHub()
	const pins, machines = "{comfyhub}:g:pins", "{comfyhub}:g:machines"
	mine := []string{"--state", filepath.Join(f.Dir, "mine")}
	box := f.startAgent("box", 1, mine...)
	f.idle(1)
	jobs := []string{f.submit(0.1, 1)}
	f.succeeded(jobs)

	// The thief comes while the machine is away, and the hub has forgotten all but what is stored.
	box.Kill()
	f.Hub.Kill()
	owner, err := c.HGet(t.Context(), pins, "box").Result()
	require.NoError(t, err)
	require.NoError(t, c.Del(t.Context(), pins).Err())
	f.startHub()
	thief := f.agent("thief", "run", "--join", f.Gossip, "--name", "box", "--simulate", "1", "--state", filepath.Join(f.Dir, "thiefs"))
	f.eventually(logged(thief, "a hub refuses this agent"), "the name is not free because Redis says so")
	_, key, _ := strings.Cut(owner, " ")
	now, err := c.HGet(t.Context(), pins, "box").Result()
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(now, " "+key), "hubs of older versions hear of it")
	f.Hub.Kill()
	at, _, _ := strings.Cut(now, " ")
	require.NoError(t, c.HSet(t.Context(), pins, "box", at+" somebody").Err())
	f.startHub()
	f.startAgent("box", 1, mine...)
	f.idle(1)
	f.succeeded(append(jobs, f.submit(0.1, 2)))

	status := func(token string) int {
		t.Helper()
		code, _ := call(t, http.MethodGet, f.URL("/hub/tunnel"), nil, bearer(token), "")
		return code
	}
	file := f.token("attic")
	text, err := os.ReadFile(file) // #nosec G304 -- our own file
	require.NoError(t, err)
	token := strings.TrimSpace(string(text))
	require.NotEqual(t, http.StatusUnauthorized, status(token))
	old, err := c.HGet(t.Context(), machines, "attic").Result()
	require.NoError(t, err)
	forged := func(token string) string {
		sum := sha256.Sum256([]byte(token))
		return "1 " + hex.EncodeToString(sum[:])
	}
	for name, token := range map[string]string{"attic": "attic:MADEUP", "cellar": "cellar:MADEUP"} {
		require.NoError(t, c.HSet(t.Context(), machines, name, forged(token)).Err())
		require.Equal(t, http.StatusUnauthorized, status(token), name)
	}
	require.NoError(t, c.HSet(t.Context(), machines, "attic", old).Err())
	require.NotEqual(t, http.StatusUnauthorized, status(token))
	require.NoError(t, c.HDel(t.Context(), machines, "attic").Err(), "hidden from whoever revokes it")
	code, body := f.admin(http.MethodDelete, "/comfyhub/tokens?machine=attic")
	require.Equal(t, http.StatusOK, code, string(body))
	require.NoError(t, c.HSet(t.Context(), machines, "attic", old).Err())
	require.Equal(t, http.StatusUnauthorized, status(token))
	_, findings := f.admin(http.MethodGet, "/comfyhub/check")
	require.Contains(t, string(findings), "tokens of machines in Redis are refused")
}
