package comfyui

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProxy(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	seen := make(chan *http.Request, 1)
	f.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/ws" {
			return r.Header.Get("Origin") != ""
		}
		seen <- r
		fmt.Fprint(w, "answer")
		return true
	})
	instance := newTestClient(t, f.URL)
	agent := httptest.NewServer(http.StripPrefix("/i/gpu", instance.Proxy()))
	defer agent.Close()

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, agent.URL+"/i/gpu/userdata/workflows%2Fa.json?x=%20y", strings.NewReader("body"))
	require.NoError(t, err)
	req.Header.Set("Origin", "http://evil")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	req.Header.Set("Sec-Fetch-Dest", "image")
	resp, err := agent.Client().Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, errors.Join(err, resp.Body.Close()))
	require.Equal(t, "answer", string(body))
	r := <-seen
	require.Equal(t, "/userdata/workflows%2Fa.json?x=%20y", r.RequestURI)
	require.Empty(t, r.Header.Get("Origin"))
	require.Empty(t, r.Header.Get("Sec-Fetch-Site"))
	require.Equal(t, "image", r.Header.Get("Sec-Fetch-Dest"))
	require.Equal(t, strings.TrimPrefix(f.URL, "http://"), r.Host)

	through := newTestClient(t, agent.URL+"/i/gpu")
	socket, err := through.Dial(t.Context(), "sid")
	require.NoError(t, err)
	_, err = socket.Next(t.Context())
	require.NoError(t, err)
	socket.Close()

	f.stop()
	// The first prompt may still go over an open connection: then nobody knows its fate.
	require.Eventually(t, func() bool {
		_, err = through.Submit(t.Context(), []byte("{}"))
		return errors.Is(err, ErrGone)
	}, time.Minute, time.Millisecond, "the agent says that the instance's port refuses")
	_, err = through.Dial(t.Context(), "sid")
	require.ErrorIs(t, err, ErrGone)
}
