package comfy_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// ask asks for the queue with the tag of an earlier answer, and returns the ids of those
// that wait.
func (b *bench) ask(tag string) (status int, newTag string, waiting []string) {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), http.MethodGet, "/queue", nil)
	r.Header.Set("If-None-Match", tag)
	answer := httptest.NewRecorder()
	b.server.Serve(answer, r, api.Visitor{IP: "127.0.0.1"})
	if answer.Code == http.StatusOK {
		var list struct {
			Pending [][]any `json:"queue_pending"`
		}
		require.NoError(b.t, json.Unmarshal(answer.Body.Bytes(), &list))
		for _, item := range list.Pending {
			waiting = append(waiting, item[1].(string))
		}
	}
	return answer.Code, answer.Header().Get("Etag"), waiting
}

// Pages ask for the queue at every status message. The test takes the bodies out of
// Redis: whatever is still shown was not read again.
func TestQueueReadsNoBodyTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBenchOn(t, server.URL())
	b.submit(1, `{}`)
	b.eventually(func() bool { return b.instance.Started() == 1 })
	first, second := b.submit(2, `{}`), b.submit(3, `{}`)
	status, tag, waiting := b.ask("")
	require.Equal(t, http.StatusOK, status)
	require.NotEmpty(t, tag)
	require.Equal(t, []string{first, second}, waiting)

	db := redistest.Open(t, server.URL())
	bodies, err := db.Client().Keys(t.Context(), "*q:body:*").Result()
	require.NoError(t, err)
	require.Len(t, bodies, 3)
	require.NoError(t, db.Client().Del(t.Context(), bodies...).Err())

	status, same, _ := b.ask(tag)
	require.Equal(t, http.StatusNotModified, status)
	require.Equal(t, tag, same)

	third := b.submit(4, `{}`)
	status, changed, waiting := b.ask(tag)
	require.Equal(t, http.StatusOK, status)
	require.NotEqual(t, tag, changed)
	require.Equal(t, []string{first, second, third}, waiting, "only the third was read")
}

// A listing that leaves something out is not the one that its jobs have otherwise.
func TestQueueWithoutABodyHasNoTag(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBenchOn(t, server.URL())
	b.submit(1, `{}`)
	b.eventually(func() bool { return b.instance.Started() == 1 })
	lost, stays := b.submit(2, `{}`), b.submit(3, `{}`)
	j, err := b.hub.Jobs.Find(t.Context(), "default", lost)
	require.NoError(t, err)
	db := redistest.Open(t, server.URL())
	require.NoError(t, db.Client().Del(t.Context(), db.Key("q", "body", j.Key)).Err())

	status, tag, waiting := b.ask("")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []string{stays}, waiting)
	require.Empty(t, tag)
}
