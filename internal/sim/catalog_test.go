package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// The web UI opens with all the classes of each listing: it reads these members of each without
// asking whether they are there.
func TestClassesAreWhole(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"0.3.64", "0.33.0", "0.38.1"} {
		v, err := parseVersion(release)
		require.NoError(t, err)
		c, err := newCatalogue(Config{}, v.features())
		require.NoError(t, err)
		for name, entry := range c.info.All() {
			info := entry.(*pyjson.Object)
			require.Equal(t, name, info.String("name"), release)
			for _, member := range []string{"category", "display_name", "description"} {
				require.True(t, info.Has(member), "%s %s %s", release, name, member)
			}
			for _, list := range []string{"output_name", "output_is_list"} {
				require.Len(t, info.Array(list), len(info.Array("output")), "%s %s %s", release, name, list)
			}
			for _, in := range c.classes[name].inputs {
				if in.typeName() == "COMFY_MATCHTYPE_V3" {
					require.NotEmpty(t, in.options.Object("template").String("template_id"), "%s %s %s", release, name, in.name)
				}
			}
		}
	}
}
