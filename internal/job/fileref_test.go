package job

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseFileRef(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]FileRef{
		"a.png":                   {TypeInput, "", "a.png"},
		"a.png [output]":          {TypeOutput, "", "a.png"},
		"clipspace/m.png [temp]":  {TypeTemp, "clipspace", "m.png"},
		"clipspace/m.png [input]": {TypeInput, "clipspace", "m.png"},
		"a/b/c.png [input]":       {TypeInput, "a/b", "c.png"},
		"s/t/a.png [output]":      {TypeOutput, "s/t", "a.png"},
		`a\b.png`:                 {TypeInput, "a", "b.png"},
		`s\a.png [temp]`:          {TypeTemp, "s", "a.png"},
		"a.png[output]":           {TypeOutput, "", "a.pn"}, // one character is cut, whatever it is
		"aü[temp]":                {TypeTemp, "", "a"},
		"[temp]":                  {TypeTemp, "", ""},
		"a.png [Output]":          {TypeInput, "", "a.png [Output]"},
		"/etc/hostname":           {TypeInput, "/etc", "hostname"},
		"/hostname":               {TypeInput, "/", "hostname"},
	} {
		require.Equal(t, want, ParseFileRef(value, TypeInput), value)
	}
	require.Equal(t, FileRef{TypeTemp, "", "a.png"}, ParseFileRef("a.png", TypeTemp))
	require.Equal(t, "s/a.png [output]", FileRef{TypeOutput, "s", "a.png"}.Value(true))
	require.Equal(t, "a.png", FileRef{TypeInput, "", "a.png"}.Value(false))
}

func FuzzParseFileRef(f *testing.F) {
	for _, s := range []string{"a.png", "sub/a.png [output]", "[temp]", "ü[input]", `a\b [temp]`, "a [output] [input]", "/0", "//0", "a//0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		ref := ParseFileRef(value, TypeInput)
		require.Contains(t, []string{TypeInput, TypeOutput, TypeTemp}, ref.Type)
		if ref.Filename == "" {
			return
		}
		require.Equal(t, ref, ParseFileRef(ref.Value(true), TypeTemp))
	})
}
