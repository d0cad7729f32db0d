package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patch changes a job and returns what the hub answers.
func (b *bench) patch(id, change string, header http.Header) (status int, body []byte) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPatch, b.web.URL+"/hub/jobs/"+id, strings.NewReader(change))
	require.NoError(b.t, err)
	if header != nil {
		r.Header = header
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(b.t, err)
	return read(b.t, resp)
}

type steered struct {
	Status   string
	Position *int
	ETA      *float64
	Priority int
	Paused   bool
	Error    string
}

func (b *bench) steer(id, change string) (j steered) {
	b.t.Helper()
	status, body := b.patch(id, change, nil)
	require.Equal(b.t, http.StatusOK, status, string(body))
	require.NoError(b.t, json.Unmarshal(body, &j))
	return j
}

func TestSteer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		long := b.submit(endless(1), "ann")
		eventually(t, func() bool { return b.explain(long).State == "running" }, time.Minute, 10*time.Millisecond)
		first, second, third := b.submit(picture(2), "ann"), b.submit(picture(3), "ann"), b.submit(picture(4), "ann")

		j := b.steer(first, `{"paused": true}`)
		require.Equal(t, steered{Status: "queued", Paused: true, Error: "it is paused; its owner can resume it"}, j)
		require.Equal(t, "it is paused; its owner can resume it", b.explain(first).Reason)
		require.Nil(t, b.explain(first).Position)
		require.Contains(t, b.text("/queue"), first, "it is pending for clients that know nothing of this")
		require.Zero(t, *b.steer(third, `{"position": "front"}`).Position)
		require.Equal(t, 1, *b.explain(second).Position)
		require.Equal(t, 7, b.steer(second, `{"priority": 7}`).Priority)
		require.Zero(t, *b.explain(second).Position)

		// Neither a page of another site, nor another tenant.
		status, _ := b.patch(second, `{"paused": true}`, http.Header{"Origin": {"https://evil.example"}})
		require.Equal(t, http.StatusForbidden, status)
		b.tenant = "another tenant"
		status, body := b.patch(second, `{"paused": true}`, nil)
		require.Equal(t, http.StatusNotFound, status, string(body))
		b.tenant = ""
		status, body = b.patch(long, `{"paused": true}`, nil)
		require.Equal(t, http.StatusConflict, status, string(body))
		require.Contains(t, string(body), "The job is not waiting")

		b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, long))
		b.finished(second)
		b.finished(third)
		require.Equal(t, "queued", b.explain(first).State)
		status, _ = b.patch(second, `{"paused": true}`, nil)
		require.Equal(t, http.StatusConflict, status, "it has ended")
		b.steer(first, `{"paused": false}`)
		b.finished(first)
	})
}
