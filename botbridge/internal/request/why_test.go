package request

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
)

func TestWhy(t *testing.T) {
	t.Parallel()
	texts, err := locale.Load("")
	require.NoError(t, err)
	able := hubapi.Candidate{Name: "a", State: "busy", CanRun: true, Why: "it runs another job"}
	unable := hubapi.Candidate{Name: "b", State: "idle", Lacks: []string{"node class X", "model y", "model z"}}
	sick := hubapi.Candidate{Name: "c", State: "sick", Why: "it takes no jobs now"}
	gone := hubapi.Candidate{Name: "d", State: "offline"}
	for _, c := range []struct {
		fleet []hubapi.Candidate
		want  string
		stuck bool
	}{
		{nil, "No image server is online", true},
		{[]hubapi.Candidate{gone}, "No image server is online", true},
		{[]hubapi.Candidate{unable, gone}, "servers online (1) can make this right now. I'll keep your request in case one comes along that can.\nWhat's missing: node class X, model y, model z", true},
		{[]hubapi.Candidate{sick}, "servers online (1) can make this right now", true},
		{[]hubapi.Candidate{able, unable, sick, gone}, "Image servers that can make it: 1 of 3.", false},
	} {
		text, stuck := Why(texts, "en", hubapi.Explanation{Instances: c.fleet})
		require.Contains(t, text, c.want)
		require.Equal(t, c.stuck, stuck)
		text, _ = Why(texts, "ru", hubapi.Explanation{Instances: c.fleet})
		require.NotContains(t, text, "achine")
		require.NotContains(t, text, "{")
	}
}

func TestOneWordAnOutage(t *testing.T) {
	t.Parallel()
	var o outage
	require.True(t, o.tell("telegram/1"))
	require.False(t, o.tell("telegram/1"), "a chat is told once")
	require.True(t, o.tell("telegram/2"))
	o.over()
	require.True(t, o.tell("telegram/1"), "the next outage is another")
}
