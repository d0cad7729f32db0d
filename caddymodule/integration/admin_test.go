package integration

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

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
		{http.MethodGet, "/comfyhub/drain?instance=" + name, http.StatusMethodNotAllowed},
		{http.MethodPost, "/comfyhub/drain", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/drain?instance=nobody", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/resume?instance=nobody", http.StatusNotFound},
		{http.MethodGet, "/comfyhub/forget?agent=nobody", http.StatusMethodNotAllowed},
		{http.MethodPost, "/comfyhub/forget", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/forget?agent=nobody", http.StatusNotFound},
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

// A configuration without a hub: the endpoint says so instead of failing.
func TestAdminWithoutHub(t *testing.T) {
	s := newSite(t)
	require.NoError(t, caddy.Load([]byte(`{"admin": {"listen": "`+s.admin+`", "config": {"persist": false}}}`), true))
	status, answer := s.call(http.MethodGet, s.admin, "/comfyhub/ready", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, answer, "no hub is running")
}
