package comfy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// What is shown of jobs that end, or are deleted, between two questions.
func TestRowsOfJobsThatEndMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	ended := b.submit(1, `{"extra_pnginfo": {"workflow": {"id": "wf-1"}}}`)
	b.eventually(func() bool { return b.instance.Started() == 1 })
	stays := b.submit(2, `{}`)
	deleted := b.submit(3, `{}`)
	live, err := b.hub.Jobs.Live(ctx, job.DefaultTenant)
	require.NoError(t, err)
	require.Len(t, live, 3)
	shown := func(statuses ...string) (out []string) {
		list, err := b.ShowJobs(ctx, live, statuses...)
		require.NoError(t, err)
		for _, v := range list {
			o := v.(*pyjson.Object)
			out = append(out, o.String("id")+" "+o.String("status")+" "+o.String("workflow_id"))
		}
		return out
	}
	b.send(http.MethodPost, "/queue", fmt.Sprintf(`{"delete": [%q]}`, deleted))
	b.send(http.MethodPost, "/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, ended))
	b.eventually(func() bool { return b.send(http.MethodGet, "/history/"+ended, "") != "{}" })

	require.Equal(t, []string{ended + " cancelled wf-1", stays + " pending "}, shown("in_progress", "pending", "cancelled"))
	require.Equal(t, []string{stays + " pending "}, shown("in_progress", "pending"))
	answer, err := b.ShowQueue(ctx, live)
	require.NoError(t, err)
	var items [][]any
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &items))
	require.Len(t, items, 1)
	require.Equal(t, stays, items[0][1])
}
