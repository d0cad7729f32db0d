package hub_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plainJob is an answer of the plain job API.
type plainJob struct {
	ID          string
	Status      string
	CreatedAt   float64  `json:"created_at"`
	StartedAt   *float64 `json:"started_at"`
	CompletedAt *float64 `json:"completed_at"`
	Error       *string
	Detail      string
	NodeErrors  map[string]any `json:"node_errors"`
	Result      *struct {
		Files []struct{ Node, Filename, Type, URL string }
	}
}

func plainOf(t testing.TB, body []byte) plainJob {
	t.Helper()
	return decoded[plainJob](t, body)
}

// order submits a job by the plain API.
func (b *bench) order(graph, more string) plainJob {
	b.t.Helper()
	return plainOf(b.t, b.posts("/submit", `{"workflow": `+graph+more+`}`))
}

func (b *bench) plain(path string) plainJob {
	b.t.Helper()
	return plainOf(b.t, b.gets(path))
}

// A program submits, polls and fetches the result, and ComfyUI's API has the same job. One key means
// one job, however many requests come with it. What the web UI has saved is converted. Limits are
// those of POST /prompt.
func TestPlainJob(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.TenantLimits.Waiting = 1 }), func(t *testing.T, b *bench) {
		b.tenant = "ann"
		var wait sync.WaitGroup
		ids := make([]string, 8)
		for n := range ids {
			wait.Go(func() {
				ids[n] = b.order(picture(0x102030), `, "service": "comfyui", "priority": 0, "idempotency_key": "k"`).ID
			})
		}
		wait.Wait()
		require.Len(t, slices.Compact(ids), 1)
		ended := b.plain("/hub/v1/wait/" + ids[0] + "?timeout=60")
		require.Equal(t, "completed", ended.Status)
		require.Equal(t, ended, b.plain("/status/"+ids[0]))
		require.InDelta(t, float64(time.Now().Unix()), ended.CreatedAt, 60)
		require.GreaterOrEqual(t, *ended.CompletedAt, *ended.StartedAt)
		require.Len(t, ended.Result.Files, 1)
		file := ended.Result.Files[0]
		require.Equal(t, "2", file.Node)
		require.True(t, strings.HasPrefix(file.URL, b.web.URL+"/view?"), file.URL)
		require.Contains(t, string(b.gets(strings.TrimPrefix(file.URL, b.web.URL))[:8]), "PNG")
		entry, ok := b.history(ids[0])
		require.True(t, ok)
		require.Equal(t, file.Filename, entry.Outputs["2"].Images[0].Filename)

		const saved = `{"nodes": [{"id": 2, "type": "SaveImage", "order": 1, "mode": 0, "inputs": [{"name": "images", "type": "IMAGE", "link": 1}], "widgets_values": ["saved"]},
			{"id": 1, "type": "EmptyImage", "order": 0, "mode": 0, "outputs": [{"name": "IMAGE", "type": "IMAGE", "links": [1]}], "widgets_values": [64, 32, 1, 255]},
			{"id": 3, "type": "%s", "order": 2, "mode": 0, "widgets_values": ["x"]}], "links": [[1, 1, 0, 2, 0, "IMAGE"]], "version": 0.4}`
		ended = b.plain("/wait/" + b.order(fmt.Sprintf(saved, "Note"), "").ID + "?timeout=60")
		require.Contains(t, ended.Result.Files[0].Filename, "saved")
		for graph, node := range map[string]string{fmt.Sprintf(saved, "Nonsense"): "3", strings.Replace(picture(1), "64", `"x"`, 1): "1"} {
			answer := answered(b.post("/submit", `{"workflow": `+graph+`}`))(t, http.StatusUnprocessableEntity)
			require.Contains(t, plainOf(t, answer).NodeErrors, node)
		}
		failed := b.plain("/wait/" + b.order(work(1, 7, "error"), "").ID + "?timeout=60")
		require.Equal(t, "failed", failed.Status)
		require.NotEmpty(t, *failed.Error)

		b.order(endless(1), "")
		eventually(t, func() bool { return started(b) == 4 }, time.Minute, 5*time.Millisecond)
		b.order(picture(1), "")
		resp, err := http.Post(b.web.URL+"/submit", "application/json", strings.NewReader(`{"workflow": `+picture(2)+`}`))
		require.NoError(t, err)
		body := answered(read(t, resp))(t, http.StatusTooManyRequests)
		require.Equal(t, "10", resp.Header.Get("Retry-After"))
		require.Contains(t, plainOf(t, body).Detail, "tenant_limits waiting")
	})
}
