package origin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/pins"
)

// Which instance may be the source of the web UI's page: not simply the one with the first name.
func TestWhoMayBeThePage(t *testing.T) {
	t.Parallel()
	{
		ofAgent := func(name, agent string) fleet.Instance {
			return fleet.Instance{Name: name, Agent: agent, Kind: fleet.KindComfyUI, URL: "https://10.0.0.1/" + name}
		}
		static := fleet.Instance{Name: "10.0.0.5:8188", Kind: fleet.KindComfyUI, URL: "http://10.0.0.5:8188"}
		second := fleet.Instance{Name: "10.0.0.4:8188", Kind: fleet.KindComfyUI, URL: "http://10.0.0.4:8188"}
		tunnel := fleet.Instance{Name: "!t", Agent: "!", Kind: fleet.KindComfyUI, URL: "tunnel://!/i/!t"}
		worker := fleet.Instance{Name: "!w", Kind: fleet.KindWorker, URL: "worker:!:w"}
		a1111 := fleet.Instance{Name: "sd", Agent: "a1111", Kind: fleet.KindA1111, URL: "https://10.0.0.9/sd"}
		old := ofAgent("zoe-1", "zoe")
		rogue := ofAgent("000-1", "000")
		since := func(name string, minute int) pins.Pin {
			return pins.Pin{Name: name, Key: "k", Since: time.Unix(int64(60*minute), 0)}
		}
		before := func(name string) pins.Pin { return pins.Pin{Name: name, Key: "k"} }
		zoeFirst := []pins.Pin{since("zoe", 1), since("000", 2)}
		for name, c := range map[string]struct {
			settings  config.Settings
			instances []fleet.Instance
			elders    []pins.Pin
			want      []string
		}{
			"the oldest agent":                       {instances: []fleet.Instance{rogue, old}, elders: zoeFirst, want: []string{"zoe-1"}},
			"all of its instances":                   {instances: []fleet.Instance{rogue, old, ofAgent("zoe-2", "zoe")}, elders: zoeFirst, want: []string{"zoe-1", "zoe-2"}},
			"nobody while it is away":                {instances: []fleet.Instance{rogue}, elders: zoeFirst},
			"nobody whose age is not known":          {instances: []fleet.Instance{rogue}},
			"no tunnel":                              {instances: []fleet.Instance{tunnel, worker}, elders: []pins.Pin{{Name: "!", Key: fleet.TunnelKey}}},
			"no tunnel that is older":                {instances: []fleet.Instance{tunnel, old}, elders: []pins.Pin{{Name: "!", Key: fleet.TunnelKey}, since("zoe", 1)}, want: []string{"zoe-1"}},
			"no tunnel under an agent's name":        {instances: []fleet.Instance{{Name: "zoe-1", Agent: "zoe", Kind: fleet.KindComfyUI, URL: "tunnel://zoe/i/zoe-1"}}, elders: zoeFirst},
			"an older agent without a ComfyUI":       {instances: []fleet.Instance{a1111, old}, elders: append([]pins.Pin{since("a1111", 0)}, zoeFirst...), want: []string{"zoe-1"}},
			"one of those from before":               {instances: []fleet.Instance{rogue, old}, elders: []pins.Pin{before("yan"), before("zoe"), since("000", 2)}, want: []string{"zoe-1"}},
			"the first of those from before":         {instances: []fleet.Instance{old, ofAgent("yan-1", "yan")}, elders: []pins.Pin{before("yan"), before("zoe")}, want: []string{"yan-1", "zoe-1"}},
			"static ones in the Caddyfile's order":   {settings: config.Settings{Instances: []string{static.URL, second.URL}}, instances: []fleet.Instance{rogue, second, static}, elders: zoeFirst, want: []string{static.Name, second.Name}},
			"no agent beside static ones":            {settings: config.Settings{Instances: []string{static.URL}}, instances: []fleet.Instance{rogue, old}, elders: zoeFirst},
			"no agent by the name of a static one":   {settings: config.Settings{Instances: []string{static.URL}}, instances: []fleet.Instance{ofAgent(static.Name, "000")}, elders: zoeFirst},
			"whom the operator names":                {settings: config.Settings{Primary: []string{"000"}, Instances: []string{static.URL}}, instances: []fleet.Instance{rogue, old, static}, elders: zoeFirst, want: []string{"000-1"}},
			"whom the operator names, in order":      {settings: config.Settings{Primary: []string{"zoe-1", "000"}}, instances: []fleet.Instance{rogue, old}, elders: zoeFirst, want: []string{"zoe-1", "000-1"}},
			"nobody else than the operator names":    {settings: config.Settings{Primary: []string{"gone"}}, instances: []fleet.Instance{rogue, old}, elders: zoeFirst},
			"a tunnel that the operator names":       {settings: config.Settings{Primary: []string{"!"}}, instances: []fleet.Instance{tunnel, old}, elders: zoeFirst, want: []string{"!t"}},
			"no worker, even if an operator says so": {settings: config.Settings{Primary: []string{"!w"}}, instances: []fleet.Instance{worker, old}, elders: zoeFirst},
		} {
			may := choose(&c.settings, c.instances, c.elders)
			var names []string
			for _, i := range may.instances {
				names = append(names, i.name)
			}
			require.Equal(t, c.want, names, name)
		}
	}
}
