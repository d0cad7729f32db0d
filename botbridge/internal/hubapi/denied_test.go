package hubapi

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// What only the operator can mend is waited for like an outage, and known by its cause.
func TestDenied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		call   string
		denied bool
	}{
		"no key":                  {http.StatusUnauthorized, `{"error": {"type": "unauthorized", "message": "no key"}}`, "submit", true},
		"no key for the fleet":    {http.StatusUnauthorized, "", "stats", true},
		"a key for too little":    {http.StatusForbidden, "", "submit", true},
		"another server":          {http.StatusNotFound, "<html>", "submit", true},
		"a workflow that is not":  {http.StatusForbidden, `{"error": {"type": "forbidden", "message": "not this model"}}`, "submit", false},
		"a job that is not there": {http.StatusNotFound, "", "job", false},
		"a hub that is away":      {http.StatusBadGateway, "", "submit", false},
	} {
		client := hub(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		})
		require.NoError(t, client.Denied())
		err := calls[c.call](t.Context(), client)
		require.Error(t, err)
		if !c.denied {
			require.NotErrorIs(t, err, ErrDenied, name)
			require.NoError(t, client.Denied(), name)
			continue
		}
		require.ErrorIs(t, err, ErrDenied, name)
		require.ErrorIs(t, err, ErrUnavailable, name)
		require.ErrorIs(t, client.Denied(), ErrDenied, name)
	}
}
