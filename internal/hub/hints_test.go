package hub_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Where the time of a job goes is learned (the instance is fifty times as fast as it says) from runs of its kind, before it has run itself.
func TestWhereTheTimeGoes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		type advice struct {
			Runs    int
			Seconds float64
			Where   []struct {
				Class   string `json:"class_type"`
				Phase   string
				Seconds float64
			}
			Hints []struct{ Name, Text string }
		}
		of := func(id string) (a advice) {
			t.Helper()
			require.NoError(t, json.Unmarshal(b.gets("/hub/v1/hints/"+id), &a))
			return a
		}
		short := b.submit(work(10, 1, "none"), "ann")
		b.finished(short)
		require.Zero(t, of(short).Runs, "nobody asks where a fifth of a second went")
		for n, seconds := range []float64{150, 250} {
			b.finished(b.submit(work(seconds, 2+n, "none"), "ann"))
		}
		waiting := b.submit(work(3600, 9, "none"), "bob")
		a := of(waiting)
		require.Equal(t, 2, a.Runs)
		require.Equal(t, "SimulatedWork", a.Where[0].Class)
		require.InDelta(t, 4, a.Where[0].Seconds, 0.5)
		require.GreaterOrEqual(t, a.Seconds, a.Where[0].Seconds)
		require.Empty(t, a.Hints)
		var whole struct{ Time advice }
		require.NoError(t, json.Unmarshal(b.gets("/hub/jobs/"+waiting+"/whole"), &whole))
		require.Equal(t, a, whole.Time)
		status, _ := b.get("/hub/v1/hints/none")
		require.Equal(t, http.StatusNotFound, status)
		b.tenant = "eve"
		status, _ = b.get("/hub/v1/hints/" + waiting)
		require.Equal(t, http.StatusNotFound, status, "another tenant's")
		b.tenant = ""
		b.posts("/interrupt", `{"prompt_id": "`+waiting+`"}`)
		<-time.After(time.Second)
	})
}
