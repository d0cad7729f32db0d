package logs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// The lines of a run are found whatever zone its machine is in.
func TestOfRun(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	end := begin.Add(40 * time.Second)
	for _, zone := range []time.Duration{0, 5*time.Hour + 45*time.Minute, -8 * time.Hour} {
		at := func(after time.Duration, text string) pyjson.Value {
			return Entry(begin.Add(zone+after).Format("2006-01-02T15:04:05.000000"), text)
		}
		log := pyjson.Array{
			at(-67*time.Minute, "got prompt\n"), at(-67*time.Minute+40*time.Second, "Prompt executed in 40.00 seconds\n"),
			at(-100*time.Millisecond, "got prompt\n"), at(20*time.Second, "  0%|"), at(21*time.Second, "\r100%|"), at(22*time.Second, "\n"),
			at(40*time.Second, "Prompt executed in 40.00 seconds\n"), at(5*time.Minute, "got prompt\n"),
		}
		var texts []string
		for _, l := range OfRun(log, begin, end) {
			texts = append(texts, l.Text)
		}
		require.Equal(t, []string{"got prompt\n", "100%|\n", "Prompt executed in 40.00 seconds\n"}, texts, zone)
		require.Len(t, OfRun(log, begin, time.Time{}), 4, "it goes on")
		require.Empty(t, OfRun(log, begin.Add(-30*time.Minute+7*time.Second), end.Add(-30*time.Minute+7*time.Second)), "nothing says which clock it is")
	}
}
