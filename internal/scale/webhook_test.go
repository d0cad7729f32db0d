package scale

import (
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

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
