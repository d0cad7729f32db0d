package comfyui

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Version{
		"0.3.64":                   {Minor: 3, Patch: 64},
		"v0.3.64":                  {Minor: 3, Patch: 64},
		"0.33.0":                   {Minor: 33},
		"1.2":                      {Major: 1, Minor: 2},
		"0.4.0rc1":                 {Minor: 4},
		"0.3.64+local":             {Minor: 3, Patch: 64},
		"v0.2.0-57-g1b2c3d":        {Minor: 2, Ahead: 57},
		"":                         {},
		"unknown":                  {},
		"1b2c3d4":                  {},
		"99999999999999999999.1.1": {},
		"0.3.":                     {Minor: 3},
		"7":                        {},
	} {
		want.Text = in
		require.Equal(t, want, ParseVersion(in), in)
	}
	require.False(t, ParseVersion("").Known())
	require.True(t, ParseVersion("0.0.1").Known())
}

func TestVersionFeatures(t *testing.T) {
	t.Parallel()
	at := func(s string) Version { return ParseVersion(s) }
	for _, c := range []struct {
		name          string
		has           func(Version) bool
		first, before string
	}{
		{"HonoursPromptID", Version.HonoursPromptID, "0.3.45", "0.3.44"},
		{"InterruptByID", Version.InterruptByID, "0.3.57", "0.3.56"},
		{"Jobs", Version.Jobs, "0.6.0", "0.5.9"},
		{"a git checkout", Version.HonoursPromptID, "v0.3.45-1-gabc", "v0.3.44-99-gabc"},
	} {
		require.True(t, c.has(at(c.first)), c.name)
		require.False(t, c.has(at(c.before)), c.name)
		require.False(t, c.has(at("")), "%s: nothing is taken for granted of an unknown version", c.name)
	}
	require.Negative(t, at("v0.3.64").Compare(at("v0.3.64-2-gabc")))
}
