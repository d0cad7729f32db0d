package platform

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestClip(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", Clip("abc", 3))
	require.Equal(t, "🦊🦊", Clip("🦊🦊", 4), "what fits is whole")
	require.Equal(t, "ab…", Clip("abcd", 3))
	require.Equal(t, "🦊…", Clip("🦊🦊🦊", 4))
	require.LessOrEqual(t, Units(Clip(strings.Repeat("🦊", 999), 100)), 100)
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		most int
		want []string
	}{
		{"a\nb", 0, []string{"a\nb"}},
		{"a\nb", 3, []string{"a\nb"}},
		{"aa\nbb\ncc", 6, []string{"aa\nbb", "cc"}},
		{"aa\n\n\nbb", 4, []string{"aa", "bb"}},
		{"abcdef", 4, []string{"abcd", "ef"}},
		{"🦊🦊🦊", 4, []string{"🦊🦊", "🦊"}},
	} {
		require.Equal(t, c.want, Split(c.text, c.most), c.text)
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("a\nbb 🦊", 3)
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most < 2 || !utf8.ValidString(text) {
			return
		}
		parts := Split(text, most)
		letters := func(s string) string { return strings.ReplaceAll(s, "\n", "") }
		require.Equal(t, letters(text), letters(strings.Join(parts, "")), "nothing is lost")
		for _, part := range parts {
			require.LessOrEqual(t, Units(part), most)
		}
	})
}
