package comfyui

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSubmit(t *testing.T) {
	t.Parallel()
	reply := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			got, _ := io.ReadAll(r.Body)
			if r.Method != http.MethodPost || r.URL.Path != "/prompt" || string(got) != `{"seed": 18446744073709551615}` {
				status, body = 599, "odd request"
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	cut := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	}
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		check func(*testing.T, Reply, error)
	}{
		"accepted": {reply(200, `{"prompt_id": "p", "number": NaN, "node_errors": {"1": {}}}`), func(t *testing.T, r Reply, err error) {
			require.NoError(t, err)
			require.Equal(t, Reply{PromptID: "p", Number: "NaN", NodeErrors: []byte(`{"1": {}}`)}, r)
		}},
		"refused": {reply(400, `{"error": {"type": "value_not_in_list", "message": "No \u00e9", "details": "d", "extra_info": {}}, "node_errors": {"1": {"errors": []}}}`), func(t *testing.T, _ Reply, err error) {
			var refused *Refused
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "value_not_in_list", refused.Type)
			require.Equal(t, "No é", refused.Message)
			require.Equal(t, "d", refused.Details)
			require.Equal(t, `{"1": {"errors": []}}`, string(refused.NodeErrors))
		}},
		"refused by an old server": {reply(400, `{"error":"no prompt","node_errors":[]}`), func(t *testing.T, _ Reply, err error) {
			var refused *Refused
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "no prompt", refused.Message)
			require.Equal(t, "[]", string(refused.NodeErrors))
		}},
		"refused in plain text": {reply(400, "bad thing"), func(t *testing.T, _ Reply, err error) {
			var refused *Refused
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "bad thing", refused.Message)
		}},
		"server error": {reply(500, "Server got itself in trouble"), func(t *testing.T, _ Reply, err error) {
			require.ErrorIs(t, err, ErrUnclear)
			require.NotErrorIs(t, err, ErrUnreachable)
		}},
		"cut": {cut, func(t *testing.T, _ Reply, err error) { require.ErrorIs(t, err, ErrUnclear) }},
		"accepted in another language": {reply(200, `<html>`), func(t *testing.T, _ Reply, err error) {
			require.ErrorIs(t, err, ErrUnclear)
		}},
		"too large": {reply(413, "Maximum request body size"), func(t *testing.T, _ Reply, err error) {
			var status *StatusError
			require.ErrorAs(t, err, &status)
			require.Equal(t, 413, status.Status)
		}},
		"login page": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, func(t *testing.T, _ Reply, err error) {
			var status *StatusError
			require.ErrorAs(t, err, &status)
			require.Equal(t, 302, status.Status)
		}},
		"hub": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(HubHeader, "1.0")
			fmt.Fprint(w, `{"prompt_id": "p"}`)
		}, func(t *testing.T, _ Reply, err error) { require.ErrorIs(t, err, ErrHub) }},
		"dead behind its agent": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(UnreachableHeader, Gone)
			w.WriteHeader(502)
		}, func(t *testing.T, _ Reply, err error) { require.ErrorIs(t, err, ErrGone) }},
		"out of reach of its agent": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(UnreachableHeader, "cannot connect")
			w.WriteHeader(502)
		}, func(t *testing.T, _ Reply, err error) {
			require.ErrorIs(t, err, ErrUnreachable)
			require.NotErrorIs(t, err, ErrGone)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.serve)
			defer server.Close()
			r, err := newTestClient(t, server.URL).Submit(t.Context(), []byte(`{"seed": 18446744073709551615}`))
			c.check(t, r, err)
		})
	}
}

func TestSubmitRefusedPort(t *testing.T) {
	t.Parallel()
	url := refusedURL(t)
	_, err := newTestClient(t, url).Submit(t.Context(), nil)
	require.ErrorIs(t, err, ErrGone)
	require.ErrorIs(t, err, ErrUnreachable)

	agent, err := NewClient(url, Options{ViaAgent: true})
	require.NoError(t, err)
	_, err = agent.Submit(t.Context(), nil)
	require.ErrorIs(t, err, ErrUnreachable)
	require.NotErrorIs(t, err, ErrGone, "the agent is away; its instance may live")
}

// A kept connection that has died is no sign that anything was sent.
func TestSubmitAfterTheServerDied(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	c := newTestClient(t, f.URL)
	for range 20 {
		_, err := c.QueueRemaining(t.Context())
		require.NoError(t, err)
	}
	f.stop()
	require.Eventually(t, func() bool {
		_, err := c.Submit(t.Context(), []byte("{}"))
		return errors.Is(err, ErrGone)
	}, time.Minute, time.Millisecond)
}

func TestSubmitTimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	c, err := NewClient(server.URL, Options{HeaderTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Submit(t.Context(), []byte("{}"))
	require.ErrorIs(t, err, ErrUnclear, "it may have been queued")
}
