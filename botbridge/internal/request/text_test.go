//go:build unix

package request

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

func TestBounded(t *testing.T) {
	t.Parallel()
	require.Equal(t, []Text{{Text: "a"}, {Text: "b"}}, bounded([]string{"a", "b"}, "cut"))
	long := strings.Repeat("ы", maxTextBytes)
	list := bounded([]string{"ab", "c", long, "d"}, "cut")
	require.Len(t, list, 3, "nothing comes after what was cut")
	require.True(t, strings.HasSuffix(list[2].Text, "ы…\ncut"), "no rune is cut in half")
	require.LessOrEqual(t, len(list[2].Text), maxTextBytes+len("…\ncut"))
	require.Nil(t, bounded(nil, "cut"))
}

// What a run made in words is said, whatever it made besides.
func TestTexts(t *testing.T) {
	t.Parallel()
	store := ledStore(t)
	shows := platform.Limits{Text: 100, Caption: 50, Photo: 1 << 20, File: 1 << 20}
	long := strings.Repeat("a red fox ", 30)
	for name, test := range map[string]struct {
		texts   []string
		picture bool
		change  func(*silent)
		sent    []string
		edited  []string
		dropped int
	}{
		"words alone":        {texts: []string{"a red fox"}, sent: []string{"a red fox"}, dropped: 1},
		"several":            {texts: []string{"fox", "snow"}, sent: []string{"fox", "snow"}, dropped: 1},
		"beside a picture":   {texts: []string{"a red fox"}, picture: true, sent: []string{"", "a red fox"}, dropped: 1},
		"no answer":          {texts: []string{"a red fox"}, change: func(s *silent) { s.quiet = 1 }, sent: []string{"a red fox", "a red fox"}, dropped: 1},
		"in place":           {texts: []string{"a red fox"}, change: func(s *silent) { s.limits.InPlace = true }, edited: []string{"a red fox"}},
		"too long":           {texts: []string{long}, sent: []string{clipTo(long, 50)}, dropped: 1},
		"too long for links": {texts: []string{long}, change: func(s *silent) { s.limits.Linked = true }, sent: []string{long[:100], long[100:200], long[200:]}, dropped: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &silent{limits: shows}
			if test.change != nil {
				test.change(p)
			}
			fate := settle(t, store, p, func(r *Record) {
				r.Texts = bounded(test.texts, "cut")
				if !test.picture {
					r.Outputs = nil
				}
			})
			require.Equal(t, Done, fate)
			var sent, edited []string
			for _, post := range p.sends {
				sent = append(sent, post.Text)
			}
			for _, post := range p.edits {
				edited = append(edited, post.Text)
			}
			require.Equal(t, test.sent, sent)
			require.Equal(t, test.edited, edited)
			require.Equal(t, test.dropped, p.dropped)
			if name == "too long" {
				body, err := p.sends[0].Files[0].Open(t.Context())
				require.NoError(t, err)
				all, err := io.ReadAll(body)
				require.NoError(t, err)
				require.Equal(t, long, string(all))
			}
			var rec Record
			_, err := store.Requests.Load(t.Context(), IDOf(t.Name()), &rec)
			require.NoError(t, err)
			for _, text := range rec.Texts {
				require.True(t, text.Told)
				require.Empty(t, text.Text, "what has been said is not kept")
			}
		})
	}
}
