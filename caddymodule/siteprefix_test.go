package caddymodule_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// A site below a path gives URLs that lead back to it, whether this Caddy has taken the path
// off or a proxy that it knows; nobody else has a say.
func TestSiteBelowAPath(t *testing.T) {
	s := newSite(t)
	below := freeAddress(t)
	_, port, err := net.SplitHostPort(below)
	require.NoError(t, err)
	require.NoError(t, s.load("", fmt.Sprintf(`http://:%s {
	bind 127.0.0.1
	redir /comfyui /comfyui/
	handle_path /comfyui/* {
		comfyhub
	}
	respond 404
}`, port)))
	s.ready()

	const stranger, lie = "X-Forwarded-Prefix", "/evil"
	const workflow = `{"workflow": {
		"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}},
		"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "a b"}}}}`
	status, answer := s.call(http.MethodPost, below, "/comfyui/submit", workflow, stranger, lie)
	require.Less(t, status, 300, answer)
	var submitted struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(answer), &submitted))
	for address, base := range map[string]string{below: "/comfyui", s.api: ""} {
		status, answer = s.call(http.MethodGet, address, base+"/wait/"+submitted.ID, "", stranger, lie)
		require.Equal(t, http.StatusOK, status, answer)
		var ended struct {
			Result struct {
				Files []struct{ Filename, URL string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(answer), &ended))
		require.Len(t, ended.Result.Files, 1, answer)
		path, found := strings.CutPrefix(ended.Result.Files[0].URL, "http://"+address)
		require.True(t, found, ended.Result.Files[0].URL)
		require.True(t, strings.HasPrefix(path, base+"/view?"), path)
		status, _ = s.call(http.MethodGet, address, path, "")
		require.Equal(t, http.StatusOK, status, path)

		status, answer = s.call(http.MethodPost, address, base+"/hub/files", fmt.Sprintf(`{"filename": %q}`, ended.Result.Files[0].Filename), stranger, lie)
		require.Equal(t, http.StatusOK, status, answer)
		var link struct{ URL string }
		require.NoError(t, json.Unmarshal([]byte(answer), &link))
		require.True(t, strings.HasPrefix(link.URL, base+"/hub/files/"), link.URL)
		status, _ = s.call(http.MethodGet, address, link.URL, "")
		require.Equal(t, http.StatusOK, status, link.URL)

		_, answer = s.call(http.MethodGet, address, base+"/hub/v1/openapi.json", "", stranger, lie)
		require.Contains(t, answer, `"servers": [{"url": "`+base+`/hub/v1"}]`)
		conn, _, err := websocket.Dial(t.Context(), "http://"+address+base+"/ws?clientId=a", nil)
		require.NoError(t, err)
		require.NoError(t, conn.CloseNow())
		status, _ = s.call(http.MethodGet, address, base+"/hub", "")
		require.Equal(t, http.StatusOK, status, "redirects to the dashboard")
	}
}
