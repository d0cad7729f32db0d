package figure_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
)

func TestFigureIsFound(t *testing.T) {
	t.Parallel()
	for _, want := range []figure.Figure{
		{Name: "hol8", Value: 31.5, Unit: "ratio", Goal: 25, Beside: "mean wait 30.2 s, 0.96 s with the hub"},
		{Name: "cpu", Value: 7.7, Unit: "ms", Goal: 3, Lower: true},
	} {
		got, err := figure.Find("=== RUN TestX\n    x_test.go:26: " + want.String() + "\n--- PASS: TestX (0.00s)\n")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "PASS", "BENCH name=x value=much"} {
		_, err := figure.Find(text)
		require.Error(t, err, "%q", text)
	}
}

func TestRow(t *testing.T) {
	t.Parallel()
	require.Equal(t, "| `hol8` | robin / hub | 31 | at least 25 |", figure.Figure{Name: "hol8", Value: 31.46, Unit: "ratio", Goal: 25}.Row("robin / hub"))
	require.Equal(t, "| `cpu` | of a prompt | 7.7 ms | at most 3 ms |", figure.Figure{Name: "cpu", Value: 7.68, Unit: "ms", Goal: 3, Lower: true}.Row("of a prompt"))
}
