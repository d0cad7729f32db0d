package bridge

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/config"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// A price that nobody can pay is found before anybody asks.
func TestPricesThatNobodyCanPay(t *testing.T) {
	t.Parallel()
	graph := []byte(`{"1": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}, "_meta": {"title": "count"}}}`)
	for _, c := range []struct {
		stars    int64
		telegram *config.Telegram
		want     string
	}{
		{0, nil, ""},
		{2500, &config.Telegram{}, ""},
		{2501, &config.Telegram{}, "command a: stars: 2501 for each of 4 pictures is more than the 10000 that Telegram takes at once"},
		{1, nil, "people can pay on Telegram only"},
	} {
		spec := workflow.Spec{Stars: c.stars, Inputs: map[workflow.Role]string{workflow.Count: "1.batch_size"}}
		command, err := workflow.NewCommand("a", spec, graph)
		require.NoError(t, err)
		got := errors.Join(sellProblems(&config.Config{Telegram: c.telegram, Commands: config.Commands{{Name: "a", Spec: spec}}}, []*workflow.Command{command})...)
		if c.want == "" {
			require.NoError(t, got)
		} else {
			require.ErrorContains(t, got, c.want)
		}
	}
}
