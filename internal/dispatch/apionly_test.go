package dispatch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Prompts whose work a paid service does are left to the instances that take nothing else, as long as
// one of these can run them.
func TestPaidPromptsAreLeftToInstancesForThem(t *testing.T) {
	t.Parallel()
	gpu, err := catalog.Parse([]byte(`{
		"Paid": {"input": {"required": {}}, "output": [], "output_node": true, "api_node": true},
		"Other": {"input": {"required": {}}, "output": [], "output_node": true, "api_node": true},
		"Load": {"input": {"required": {"name": [["a.safetensors"], {}]}}, "output": [], "output_node": true},
		"Save": {"input": {"required": {}}, "output": [], "output_node": true}}`))
	require.NoError(t, err)
	few, err := catalog.Parse([]byte(`{
		"Paid": {"input": {"required": {}}, "output": [], "output_node": true, "api_node": true},
		"Load": {"input": {"required": {"name": [["a.safetensors"], {}]}}, "output": [], "output_node": true},
		"Save": {"input": {"required": {}}, "output": [], "output_node": true}}`))
	require.NoError(t, err)
	cpu := catalog.ForAPIOnly(few, true)
	load := []catalog.Choice{{Class: "Load", Input: "name", Value: "a.safetensors"}}
	for name, c := range map[string]struct {
		needs    catalog.Requirements
		cpus     []*catalog.Info
		cpu, gpu bool
	}{
		"a paid service":                       {catalog.Requirements{Classes: []string{"Paid", "Save"}}, []*catalog.Info{cpu}, true, false},
		"a paid service, and no such instance": {catalog.Requirements{Classes: []string{"Paid", "Save"}}, nil, true, true},
		"a service that it does not have":      {catalog.Requirements{Classes: []string{"Other"}}, []*catalog.Info{cpu}, false, true},
		"no paid service":                      {catalog.Requirements{Classes: []string{"Save"}}, []*catalog.Info{cpu}, false, true},
		"a paid service and a model":           {catalog.Requirements{Classes: []string{"Load", "Paid"}, Choices: load}, []*catalog.Info{cpu}, false, true},
		"a key that it may not have":           {catalog.Requirements{Classes: []string{"Paid"}, Secrets: true}, []*catalog.Info{cpu}, false, true},
		"a key that it may have":               {catalog.Requirements{Classes: []string{"Paid"}, Secrets: true}, []*catalog.Info{cpu.WithSecrets(true)}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			class := c.needs.Signature()
			js := judgements{forAPI: func() []*catalog.Info { return c.cpus }}
			idle, infos := []schedule.Idle{{Name: "gpu"}}, []*catalog.Info{gpu.WithSecrets(true)}
			for _, info := range append(c.cpus, cpu)[:1] {
				idle, infos = append(idle, schedule.Idle{Name: "cpu"}), append(infos, info)
			}
			js.able(idle, infos, map[string][]byte{class: c.needs.Encode()})
			require.Equal(t, c.gpu, idle[0].Classes[class], "the GPU")
			require.Equal(t, c.cpu, idle[1].Classes[class], "the CPU")
			require.Equal(t, c.gpu, !js.leaves(infos[0], c.needs))
		})
	}
}
