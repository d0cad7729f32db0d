package catalog

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func (l *Library) sizes() (infos, classes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.infos), len(l.classes)
}

func TestLibrarySharesAndForgets(t *testing.T) {
	t.Parallel()
	const (
		common = `"A":{"input":{"required":{"x":["INT",{}]}},"output":[]}`
		first  = `{` + common + `,"B":{"input":{"required":{"m":[["a"]]}}}}`
		second = `{` + common + `,"B":{"input":{"required":{"m":[["b"]]}}}}`
	)
	l := NewLibrary()
	parse := func(body string) *Info {
		i, err := l.Parse([]byte(body))
		require.NoError(t, err)
		return i
	}
	a, again, b := parse(first), parse(first), parse(second)
	require.Same(t, a, again, "equal bodies are one info")
	require.Same(t, a.classes["A"], b.classes["A"], "equal classes are one class")
	require.NotSame(t, a.classes["B"], b.classes["B"])
	infos, classes := l.sizes()
	require.Equal(t, []int{2, 3}, []int{infos, classes})

	runtime.KeepAlive(b)
	b = nil
	require.Eventually(t, func() bool {
		runtime.GC()
		infos, classes := l.sizes()
		return infos == 1 && classes == 2
	}, time.Minute, time.Millisecond, "what no info uses is forgotten")
	require.NotSame(t, a, parse(second))
	runtime.KeepAlive(a)
}

// What an instance describes without end is left out; the rest is not.
func TestImmoderateClassesAreLeftOut(t *testing.T) {
	t.Parallel()
	one := `{"input": {"required": {}}, "output": [], "output_name": [], "name": "B", "output_node": false}`
	body := `{"A": [` + strings.Repeat("{},", maxClass/3) + `{}], "B": ` + one + `}`
	info, err := Parse([]byte(body))
	require.NoError(t, err)
	require.Equal(t, []string{"A"}, info.Skipped())
	require.Equal(t, 1, info.Classes())
}
