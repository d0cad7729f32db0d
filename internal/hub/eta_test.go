package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// postFor posts a prompt and returns its id and the header X-ComfyHub-Eta.
func (b *bench) postFor(graph, client string) (id, eta string) {
	b.t.Helper()
	resp, err := http.Post(b.web.URL+"/prompt", "application/json", strings.NewReader(fmt.Sprintf(`{"prompt": %s, "client_id": %q}`, graph, client)))
	require.NoError(b.t, err)
	eta = resp.Header.Get("X-ComfyHub-Eta")
	status, body := read(b.t, resp)
	require.Equal(b.t, http.StatusOK, status, string(body))
	var accepted struct {
		ID string `json:"prompt_id"`
	}
	require.NoError(b.t, json.Unmarshal(body, &accepted))
	return accepted.ID, eta
}

// etaOf is the eta of a job in /hub/jobs/ID, in the list, and in its explanation.
func (b *bench) etaOf(id string) (of [3]*float64) {
	b.t.Helper()
	type view struct {
		ID  string   `json:"id"`
		ETA *float64 `json:"eta"`
	}
	var one, explained view
	var list []view
	_, body := b.get("/hub/jobs/" + id)
	require.NoError(b.t, json.Unmarshal(body, &one), string(body))
	_, body = b.get("/hub/jobs")
	require.NoError(b.t, json.Unmarshal(body, &list), string(body))
	_, body = b.post("/hub/explain", fmt.Sprintf(`{"prompt_id": %q}`, id))
	require.NoError(b.t, json.Unmarshal(body, &explained), string(body))
	for _, v := range list {
		if v.ID == id {
			of[1] = v.ETA
		}
	}
	of[0], of[2] = one.ETA, explained.ETA
	return of
}

// A graph has an ETA once one of its structure has run, and only then.
func TestETA(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.connected(1)
	for n := range 3 {
		id, eta := b.postFor(work(0.3, n, "none"), "ann")
		if n == 0 {
			require.Empty(t, eta, "nothing is known yet")
		}
		b.finished(id)
	}
	running, _ := b.postFor(endless(9), "ann")
	eventually(t, func() bool { return b.explain(running).State == "running" }, time.Minute, 10*time.Millisecond)
	for _, eta := range b.etaOf(running) {
		require.NotNil(t, eta, "of the same structure, but longer")
		require.Greater(t, *eta, 10.0, "its seconds count")
	}
	ahead, _ := b.postFor(work(0.3, 10, "none"), "ann")
	var waiting string
	nonce := 11
	eventually(t, func() bool { // the look ahead may be a moment old
		var header string
		waiting, header = b.postFor(work(0.3, nonce, "none"), "ann")
		nonce++
		eta, err := strconv.ParseFloat(header, 64)
		return err == nil && eta > 10
	}, time.Minute, 100*time.Millisecond)
	eventually(t, func() bool {
		of, first := b.etaOf(waiting), b.etaOf(ahead)[0]
		return of[0] != nil && of[1] != nil && of[2] != nil && *of[0] > 10 && first != nil && *first < *of[0]
	}, time.Minute, 10*time.Millisecond)

	unknown, header := b.postFor(picture(1), "ann")
	require.Empty(t, header, "no prompt of this structure has run")
	require.Equal(t, [3]*float64{}, b.etaOf(unknown))
	_, _ = b.post("/hub/jobs/"+running+"/cancel", "")
	b.finished(waiting)
	require.Nil(t, b.etaOf(waiting)[0], "it has ended")

	// What was learned outlives the hub.
	b.stop()
	b.start()
	b.connected(1)
	eventually(t, func() bool {
		id, header := b.postFor(work(0.3, int(time.Now().UnixNano()%1e6), "none"), "ann")
		b.finished(id)
		return header != ""
	}, time.Minute, 10*time.Millisecond)
}
