package hub

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInstanceForgetsItsHistory: an instance that was restarted knows nothing of
// what it has run. What the hub tells of it is the hub's own, and stays.
func TestInstanceForgetsItsHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	c := b.dial("me")
	id := b.submit(picture(7), "me")
	c.until(id)
	// At once: the end was told, so nothing more may be needed of the instance.
	b.instances[0].die()
	e := b.finished(id)
	paths := []string{
		"/history", "/history/" + id, "/api/jobs", "/api/jobs/" + id, "/queue",
		"/view?type=output&filename=" + e.Outputs["2"].Images[0].Filename,
	}
	told := func() (out []string) {
		for _, path := range paths {
			status, body := b.get(path)
			require.Equal(t, http.StatusOK, status, path)
			out = append(out, string(body))
		}
		return out
	}
	before := told()
	b.instances[0].revive()
	next := b.submit(picture(8), "me") // runs when the instance is back
	c.until(next)
	require.NotContains(t, before[0], next)
	status, _ := b.post("/history", `{"delete": ["`+next+`"]}`)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, before, told())
}
