package scale

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/egress"
)

// A receiver gets the change, signed, and its status says whether it is done.
func TestWebhook(t *testing.T) {
	t.Parallel()
	const secret = "sixteen bytes or more"
	status, got := http.StatusAccepted, Change{}
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		hook, err := standardwebhooks.NewWebhookRaw([]byte(secret))
		if err != nil || hook.Verify(body, r.Header) != nil || json.Unmarshal(body, &got) != nil || r.Header.Get("webhook-id") != got.ID {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.WriteHeader(status)
	}))
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	hook := Webhook{URL: web.URL + "/machines?key=secret", Secret: secret, Egress: egress.Options{Roots: roots}}
	require.NoError(t, hook.Check())
	change := Change{ID: "abc", Sequence: 3, Class: "gpu", Wanted: 2, Start: 1, Remove: []string{"gpu-1"}, Keep: []string{"gpu-2"}, Reason: "so"}
	require.NoError(t, hook.Set(t.Context(), change))
	require.Equal(t, change, got)

	status = http.StatusFound
	require.ErrorContains(t, hook.Set(t.Context(), change), "the webhook answered with 302 Found")
	other := hook
	other.Secret = "another secret of a hub"
	require.ErrorContains(t, other.Set(t.Context(), change), "403 Forbidden")
	web.Close()
	err := hook.Set(t.Context(), change)
	require.ErrorContains(t, err, "the webhook failed")
	require.NotContains(t, err.Error(), "secret")

	for _, wrong := range []string{"http://example.com", "https://", "example.com/x", "https://ann:pw@example.com/", ":"} {
		require.Error(t, Webhook{URL: wrong}.Check(), wrong)
	}
}

// As a program, this test is one that starts machines.
func TestMachineProgram(t *testing.T) {
	t.Parallel()
	switch os.Getenv("SCALE_TEST") {
	case "":
		t.Skip("only as a program")
	case "well":
		var c Change
		require.NoError(t, json.NewDecoder(os.Stdin).Decode(&c))
		require.NoError(t, os.WriteFile(os.Getenv("SCALE_FILE"), []byte(c.ID+" "+strings.Join(c.Remove, ",")+os.Getenv("COMFYHUB_SECRET")), 0o600))
	case "fails":
		_, _ = os.Stderr.WriteString(strings.Repeat("noise ", 1000) + "\nno quota\n")
		os.Exit(3)
	case "hangs":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, _ = l.Accept()
	}
}

// A program gets the change, and what it says when it fails is the error.
func TestExec(t *testing.T) {
	file := t.TempDir() + "/told"
	t.Setenv("COMFYHUB_SECRET", "none of its business")
	t.Setenv("SCALE_FILE", file)
	e := Exec{Command: []string{os.Args[0], "-test.run=^TestMachineProgram$"}}

	t.Setenv("SCALE_TEST", "well")
	require.NoError(t, e.Set(t.Context(), Change{ID: "abc", Class: "gpu", Wanted: 1, Remove: []string{"gpu-1"}}))
	told, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "abc gpu-1", string(told))

	t.Setenv("SCALE_TEST", "fails")
	err = e.Set(t.Context(), Change{})
	require.ErrorContains(t, err, "exit status 3")
	require.ErrorContains(t, err, "no quota")
	require.Less(t, len(err.Error()), 1000)
	require.NotContains(t, err.Error(), "\n")

	t.Setenv("SCALE_TEST", "hangs")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, e.Set(ctx, Change{}), "took too long")

	require.Error(t, Exec{Command: []string{"./there-is-no-such-program"}}.Set(t.Context(), Change{}))
}
