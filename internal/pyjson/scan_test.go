package pyjson

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// FuzzScanner: what the parser reads the scanner finds, member for member, and
// no text makes it run out of bounds or in circles.
func FuzzScanner(f *testing.F) {
	for _, text := range []string{
		`{"a": [1, -2.5e3, NaN, "x\"y", null, {"b": {}}], "a": true, "": []}`,
		`[[], [1], {"a": "]"}]`, ` {"a" : 1 , "b":2} `, `"\`, `{"a": 1`, `{"a" 1}`, `[1,]`, `{,}`, `]`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		tree, err := Parse(text)
		s := Scanner{Data: text}
		place, ok := s.Value()
		require.LessOrEqual(t, s.At, len(text)+1)
		if err != nil {
			return
		}
		require.True(t, ok && s.End())
		require.Equal(t, Marshal(tree), Marshal(must.Get(Parse(place.Of(text)))(t)))
		if object, is := tree.(*Object); is {
			last := map[string][]byte{}
			require.True(t, Members(text, func(key string, value []byte) { last[key] = value }))
			require.Len(t, last, object.Len())
			for key, value := range object.All() {
				require.Equal(t, Marshal(value), Marshal(must.Get(Parse(last[key]))(t)))
			}
		}
	})
}
