package caddymodule_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
)

func TestAdmin(t *testing.T) {
	s := newSite(t)
	s.start("")
	_, answer := s.call(http.MethodGet, s.admin, "/comfyhub/instances", "")
	var instances []struct{ Name string }
	require.NoError(t, json.Unmarshal([]byte(answer), &instances))
	require.Len(t, instances, 1)
	name := url.QueryEscape(instances[0].Name)

	for _, tc := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/comfyhub/live", http.StatusOK},
		{http.MethodHead, "/comfyhub/ready", http.StatusOK},
		{http.MethodPost, "/comfyhub/ready", http.StatusMethodNotAllowed},
		{http.MethodGet, "/comfyhub/stats", http.StatusOK},
		{http.MethodGet, "/comfyhub/jobs?status=running&limit=10", http.StatusOK},
		{http.MethodGet, "/comfyhub/jobs?limit=1001", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/cancel?tenant=default&job=none", http.StatusOK},
		{http.MethodPost, "/comfyhub/cancel?job=none", http.StatusBadRequest},
		{http.MethodGet, "/comfyhub/cancel?tenant=default&job=none", http.StatusMethodNotAllowed},
		{http.MethodGet, "/comfyhub/drain?instance=" + name, http.StatusMethodNotAllowed},
		{http.MethodPost, "/comfyhub/drain", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/restart", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/restart?instance=nobody", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/restart?instance=" + name, http.StatusConflict},
		{http.MethodPost, "/comfyhub/drain?instance=nobody", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/drain?instance=nobody&deadline=10m", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/drain?instance=" + name + "&deadline=soon", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/drain?instance=" + name + "&deadline=0", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/drain?instance=" + name + "&deadline=31d", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/drain?instance=" + name + "&deadline=10m&tenant=ada", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/drain?deadline=10m", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/resume?instance=nobody", http.StatusNotFound},
		{http.MethodGet, "/comfyhub/pause", http.StatusMethodNotAllowed},
		{http.MethodPost, "/comfyhub/pause?instance=nobody", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/pause?instance=", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/pause?tenent=ada", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/pause?tenant=ada&instance=" + name, http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/pause?tenant=ada", http.StatusOK},
		{http.MethodPost, "/comfyhub/resume?tenant=ada", http.StatusOK},
		{http.MethodPost, "/comfyhub/pause", http.StatusOK},
		{http.MethodPost, "/comfyhub/resume", http.StatusOK},
		{http.MethodGet, "/comfyhub/forget?agent=nobody", http.StatusMethodNotAllowed},
		{http.MethodPost, "/comfyhub/forget", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/forget?agent=nobody", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/forget?instance=nobody", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/forget?instance=", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/forget?instance=a&agent=b", http.StatusBadRequest},
		{http.MethodGet, "/comfyhub/rotate-keys", http.StatusMethodNotAllowed},
		{http.MethodGet, "/comfyhub/hub-key", http.StatusOK},
		{http.MethodPost, "/comfyhub/hub-key", http.StatusMethodNotAllowed},
		{http.MethodGet, "/comfyhub/trash", http.StatusOK},
		{http.MethodGet, "/comfyhub/trash?limit=none", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/trash?id=x", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/trash?tenant=ada&id=x", http.StatusNotFound},
		{http.MethodDelete, "/comfyhub/trash", http.StatusMethodNotAllowed},
		{http.MethodGet, "/comfyhub/tokens", http.StatusOK},
		{http.MethodPut, "/comfyhub/tokens?machine=attic", http.StatusMethodNotAllowed},
		{http.MethodPost, "/comfyhub/tokens", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/tokens?machine=a/b", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/tokens?machine=attic", http.StatusOK},
		{http.MethodDelete, "/comfyhub/tokens?machine=attic", http.StatusOK},
		{http.MethodDelete, "/comfyhub/tokens?machine=attic", http.StatusNotFound},
		{http.MethodGet, "/comfyhub/keys", http.StatusOK},
		{http.MethodPut, "/comfyhub/keys?name=ada", http.StatusMethodNotAllowed},
		{http.MethodPost, "/comfyhub/keys", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/keys?name=ada&weigth=2", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/keys?name=ada&name=bob", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/keys?name=ada&weight=NaN", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/keys?name=ada&running=99999999999", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/keys?name=ada&expires=1d", http.StatusOK},
		{http.MethodPost, "/comfyhub/keys?name=ada", http.StatusConflict},
		{http.MethodDelete, "/comfyhub/keys?name=ada", http.StatusOK},
		{http.MethodDelete, "/comfyhub/keys?name=ada", http.StatusNotFound},
	} {
		status, answer := s.call(tc.method, s.admin, tc.path, "")
		require.Equal(t, tc.want, status, "%s %s: %s", tc.method, tc.path, answer)
	}

	for _, step := range []struct{ verb, state string }{{"drain", "draining"}, {"resume", "idle"}} {
		status, answer := s.call(http.MethodPost, s.admin, "/comfyhub/"+step.verb+"?instance="+name, "")
		require.Equal(t, http.StatusOK, status, answer)
		s.await(func() bool {
			_, answer := s.call(http.MethodGet, s.admin, "/comfyhub/instances", "")
			var now []struct{ State string }
			return json.Unmarshal([]byte(answer), &now) == nil && len(now) == 1 && now[0].State == step.state
		})
	}
}

// A verb rotates the keys, and neither its answer nor the configuration that
// Caddy shows has a secret in it.
func TestRotateKeys(t *testing.T) {
	const secret = "a secret that only the operator has"
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	s := newSite(t)
	s.start("secret {file." + file + "}")
	for n := range 2 {
		status, body := s.call(http.MethodPost, s.admin, "/comfyhub/rotate-keys", "")
		require.Equal(t, http.StatusOK, status, body)
		var rotation struct {
			Key  string
			From int64 `json:"used_from"`
			Keys int
		}
		require.NoError(t, json.Unmarshal([]byte(body), &rotation))
		require.Equal(t, n+2, rotation.Keys)
		require.Len(t, rotation.Key, 16)
		require.Greater(t, rotation.From, time.Now().Unix())
	}
	entries, err := os.ReadDir(filepath.Join(s.data, "files", "comfyhub-keys"))
	require.NoError(t, err)
	require.Len(t, entries, 3)
	status, config := s.call(http.MethodGet, s.admin, "/config/", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, config, "{file."+file+"}")
	require.NotContains(t, config, secret)

	// A reload that changes it needs no restart; one that forgets it is refused.
	require.Error(t, s.load(""))
	require.NoError(t, s.load("secret {$NEW:another-secret-of-the-operator} {file."+file+"}"))
	require.NoError(t, s.load("secret another-secret-of-the-operator"))
	require.Error(t, s.load("secret {file."+file+"}"))
	require.Error(t, s.load("secret {file."+file+".mistyped}"))
}

// A configuration without a hub: the endpoint says so instead of failing.
func TestAdminWithoutHub(t *testing.T) {
	s := newSite(t)
	require.NoError(t, caddy.Load([]byte(`{"admin": {"listen": "`+s.admin+`", "config": {"persist": false}}}`), true))
	status, answer := s.call(http.MethodGet, s.admin, "/comfyhub/ready", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, answer, "no hub is running")
}
