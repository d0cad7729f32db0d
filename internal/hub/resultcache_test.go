package hub_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// cached is a hub with one instance and a result cache.
func cached() plan {
	return benchOf(1, func(b *bench) { b.settings.TenantLimits.ResultCache = time.Hour })
}

// kept waits until the result of a job can be given again.
func (b *bench) kept(id string) {
	b.t.Helper()
	j := must(b.hub.Queue().Find(context.Background(), job.DefaultTenant, id))(b.t)
	eventually(b.t, func() bool {
		body := b.hub.DB().Client().HGet(context.Background(), b.hub.DB().Key("q", "job", j.Key), "result")
		return body.Err() == nil
	}, time.Minute, 10*time.Millisecond)
}

func TestEqualPromptHasTheResultAtOnce(t *testing.T) {
	inBench(t, cached(), func(t *testing.T, b *bench) {
		first := b.submit(picture(7), "ann")
		made := b.finished(first)
		b.kept(first)
		c := b.dial("bob")
		id := b.submit(picture(7), "bob")
		require.Equal(t, []string{"execution_start", "execution_cached", "executed", "execution_success", "executing"}, c.until(id))
		again := b.finished(id)
		require.Equal(t, made.Outputs, again.Outputs)
		require.Equal(t, "success", again.Status.Text)
		require.Contains(t, string(again.Status.Messages[1][1]), `"nodes": ["1", "2"]`)
		require.Equal(t, 1, b.instances[0].Started(), "nothing has run")
		require.Contains(t, b.text("/hub/jobs/"+id), whyRepeated)
		require.InDelta(t, 1, b.metric("comfyhub_jobs_repeated_total"), 0)

		b.posts("/history", fmt.Sprintf(`{"delete": [%q]}`, first))
		require.True(t, b.views(made.Outputs["2"].Images[0].Filename), "the second job still has it")
		// A result that somebody has deleted is not given again; that of the second job was never kept.
		third := b.submit(picture(7), "ann")
		b.finished(third)
		require.Equal(t, 2, b.instances[0].Started())
	})
}

const whyRepeated = "it has the result of an equal prompt"

// Whatever may matter and differs, or cannot be known, makes a prompt run.
func TestOtherPromptsRun(t *testing.T) {
	inBench(t, cached(), func(t *testing.T, b *bench) {
		for n, graph := range []string{picture(1), picture(2), work(0.01, 3, "none"), work(0.01, 3, "none")} {
			id := b.submit(graph, "ann")
			b.finished(id)
			if n < 2 {
				b.kept(id)
			}
		}
		require.Equal(t, 4, b.instances[0].Started())
		time.Sleep(2 * time.Hour) // longer than a result may be given
		b.finished(b.submit(picture(1), "ann"))
		require.Equal(t, 5, b.instances[0].Started())
	})
}

// One tenant neither gets nor sees another's results.
func TestResultsAreTheirTenants(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{ResultCache: time.Hour}, func(b *bench) { b.instances = append(b.instances, newInstance(t, sim.Config{})) })
		for _, tenant := range []string{"ann", "bob", "ann"} {
			id := idOf(t, []byte(b.acts(tenant, http.MethodPost, "/prompt", `{"prompt": `+picture(1)+`}`)))
			eventually(t, func() bool { return b.acts(tenant, http.MethodGet, "/history/"+id, "") != "{}" }, time.Minute, 10*time.Millisecond)
			time.Sleep(time.Second)
		}
		require.Equal(t, 2, b.instances[0].Started())
	})
}

// A hub that dies before it has given a result leaves a job that runs.
func TestHubDiesBeforeItGivesAResult(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		b.begins(endless(9), "bob")
		id := b.submit(picture(1), "ann")
		ctx := context.Background()
		j := must(b.hub.Queue().Find(ctx, job.DefaultTenant, id))(t)
		must(b.hub.Queue().Claim(ctx, queue.ClaimRequest{Key: j.Key, Tenant: j.Tenant, Hub: "gone/1", Upstream: "x", Why: whyRepeated}))(t)
		b.posts("/interrupt", "")
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.Equal(t, 1, must(b.hub.Queue().Find(ctx, job.DefaultTenant, id))(t).Attempts, "that was no attempt")
	})
}
