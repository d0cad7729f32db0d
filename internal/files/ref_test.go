package files

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseValue(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]Ref{
		"a.png":                  {TypeInput, "", "a.png"},
		"a.png [output]":         {TypeOutput, "", "a.png"},
		"clipspace/m.png [temp]": {TypeTemp, "clipspace", "m.png"},
		"a/b/c.png [input]":      {TypeInput, "a/b", "c.png"},
		`a\b.png`:                {TypeInput, "a", "b.png"},
		"a.png[output]":          {TypeOutput, "", "a.pn"}, // one character is cut, whatever it is
		"aü[temp]":               {TypeTemp, "", "a"},
		"[temp]":                 {TypeTemp, "", ""},
		"a.png [Output]":         {TypeInput, "", "a.png [Output]"},
		"/etc/hostname":          {TypeInput, "/etc", "hostname"},
		"/hostname":              {TypeInput, "/", "hostname"},
	} {
		require.Equal(t, want, ParseValue(value, TypeInput), value)
	}
	for _, absolute := range []string{"/hostname", "/etc/hostname", "../x", "a/../../x", `..\x`} {
		_, ok := ParseValue(absolute, TypeInput).place()
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
