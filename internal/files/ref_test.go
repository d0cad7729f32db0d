package files

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

func TestNamesThatLeadOut(t *testing.T) {
	t.Parallel()
	for _, absolute := range []string{"/hostname", "/etc/hostname", "../x", "a/../../x", `..\x`} {
		_, ok := placeOf(job.ParseFileRef(absolute, job.TypeInput))
		require.False(t, ok, absolute)
	}
}

func TestSplitExt(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"a.png": {"a", ".png"}, "a": {"a", ""}, ".a": {".a", ""}, "..a": {"..a", ""}, ".a.b": {".a", ".b"},
		"a.": {"a", "."}, "d.d/a": {"d.d/a", ""}, "": {"", ""}, "a.b.c": {"a.b", ".c"},
	} {
		stem, ext := splitExt(name)
		require.Equal(t, want, [2]string{stem, ext}, name)
	}
}
