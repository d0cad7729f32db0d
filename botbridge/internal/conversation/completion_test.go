package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
)

func TestSuggest(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	for _, one := range []struct {
		command, argument, typed string
		want                     []string
	}{
		{"generate", "sampler", "", []string{"euler", "heun", "dpmpp_2m", "a", "b", "c", "d", "e"}},
		{"generate", "sampler", "dpm", []string{"dpmpp_2m"}},
		{"generate", "sampler", "2M", []string{"dpmpp_2m"}},
		{"generate", "sampler", "huen", []string{"heun"}},
		{"generate", "sampler", "qqqq", nil},
		{"generate", "cfg", "", []string{"7.5", "0", "100"}},
		{"generate", "cfg", "4", []string{"4", "0", "100"}},
		{"generate", "note", "", nil},
		{"generate", "prompt", "", nil},
		{"generate", "nothing", "", nil},
		{"nothing", "cfg", "", nil},
		{"help", "command", "gen", []string{"generate"}},
	} {
		require.Equal(t, one.want, r.talk.Suggest(r.ctx, one.command, one.argument, one.typed), "%+v", one)
	}
	r.away.Store(true)
	r.talk.handbook.catalogs.asked["Text"] = r.talk.handbook.catalogs.asked["Text"].Add(-catalogKeep)
	require.Equal(t, []string{"heun"}, r.talk.Suggest(r.ctx, "generate", "sampler", "heu"), "what the fleet has said counts while the hub is away")
}
