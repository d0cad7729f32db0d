package chart_test

import (
	"bytes"
	"image/png"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/chart"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

func words() chart.Words {
	return chart.Words{
		Requests: "Запросы по дням", Wait: "Сколько ждали", Done: "Готово", Failed: "Не вышло", Other: "Остановлено", Users: "Люди",
		Half: "половина", Most: "95 %", Day: "02.01.", Duration: time.Duration.String,
	}
}

// Any days give a picture of the size of a phone's screen, an empty one, too.
func TestDraw(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	seen := map[string]bool{}
	for n, days := range map[string][]state.Day{
		"empty": {{Begin: begin}}, "one": {{Begin: begin, Outcomes: map[string]int64{"done": 1}, Users: 1}},
		"many": func() (days []state.Day) {
			for i := range 30 {
				n := int64(i * 37 % 50)
				days = append(days, state.Day{Begin: begin.AddDate(0, 0, i), Users: n/5 + 1, Outcomes: map[string]int64{"done": n, "failed": n / 9, "cancelled": n / 7}})
			}
			return days
		}(),
		"huge": {{Begin: begin, Outcomes: map[string]int64{"done": 1 << 40}, Users: 100_000}},
	} {
		data, err := chart.Draw(days, words())
		require.NoError(t, err, n)
		config, err := png.DecodeConfig(bytes.NewReader(data))
		require.NoError(t, err)
		require.Equal(t, chart.Width, config.Width)
		require.Equal(t, chart.Height, config.Height)
		require.False(t, seen[string(data)], "it shows something: %s", n)
		seen[string(data)] = true
		if folder := os.Getenv("COMFYHUB_CHARTS"); folder != "" {
			require.NoError(t, os.WriteFile(folder+"/"+n+".png", data, 0o600))
		}
	}
}
