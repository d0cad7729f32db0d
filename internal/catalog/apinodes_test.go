package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
)

// Instances that may not have API keys neither turn the need for one on nor off.
func TestAPINodes(t *testing.T) {
	t.Parallel()
	says := func(paid string) *catalog.Info {
		return parseInfo(t, `{"Paid":{"input":{"required":{}},"output":["IMAGE"],"output_node":true,"api_node":`+paid+`},
			"Plain":{"input":{"required":{}},"output":["IMAGE"],"output_node":true,"api_node":false}}`)
	}
	none := parseInfo(t, `{"Other":{"input":{"required":{}}}}`)
	trusted := func(paid string) *catalog.Info { return says(paid).WithSecrets(true) }
	graph := parseGraph(t, `{"2":{"class_type":"Plain","inputs":{}},"1":{"class_type":"Paid","inputs":{}},"3":{"class_type":"Nowhere","inputs":{}}}`)
	for name, tt := range map[string]struct {
		infos []*catalog.Info
		paid  bool
	}{
		"nobody":                              {nil, false},
		"a trusted one":                       {[]*catalog.Info{trusted("true")}, true},
		"a trusted one denies it":             {[]*catalog.Info{trusted("false")}, false},
		"one of two trusted ones":             {[]*catalog.Info{trusted("false"), trusted("true")}, true},
		"a liar turns it on":                  {[]*catalog.Info{says("true"), trusted("false")}, false},
		"a liar turns it off":                 {[]*catalog.Info{says("false"), trusted("true")}, true},
		"all others, where no trusted has it": {[]*catalog.Info{says("true"), says("true"), none.WithSecrets(true)}, true},
		"not all others":                      {[]*catalog.Info{says("true"), says("false"), none}, false},
		"another value":                       {[]*catalog.Info{trusted(`"true"`)}, false},
		"a number":                            {[]*catalog.Info{trusted("1")}, false},
	} {
		want := []string(nil)
		if tt.paid {
			want = []string{"1"}
		}
		require.Equal(t, want, catalog.APINodes(graph, nil, tt.infos), name)
		require.Equal(t, want, catalog.APINodes(graph, []string{"1"}, tt.infos), name)
		require.Empty(t, catalog.APINodes(graph, []string{"2"}, tt.infos), "the outputs do not need it")
	}
}

func TestHasSecret(t *testing.T) {
	t.Parallel()
	for secrets, want := range map[string]bool{
		``: false, `{}`: false, `{"api_key_comfy_org": null}`: false, `{"api_key_comfy_org": ""}`: false,
		`{"auth_token_comfy_org": null, "api_key_comfy_org": "k"}`: true, `[]`: false, `{"auth_token_comfy_org": "t"}`: true,
	} {
		require.Equal(t, want, catalog.HasSecret([]byte(secrets)), secrets)
	}
}

// A job that needs its key finds only instances that may have it, and a hub that does not know
// of this leaves it to others.
func TestRequiredSecrets(t *testing.T) {
	t.Parallel()
	info := parseInfo(t, sampling(`"euler"`, `"x.pt"`))
	r := catalog.Requirements{Classes: []string{"Sample"}, Secrets: true}
	again, err := catalog.DecodeRequirements(r.Encode())
	require.NoError(t, err)
	require.Equal(t, r, again)
	require.Contains(t, string(r.Encode()), `"v": 2`)
	require.Len(t, info.Satisfies(r), 1)
	require.Empty(t, info.WithSecrets(true).Satisfies(r))
	require.NotEqual(t, info.Profile(), info.WithSecrets(true).Profile())
	require.Equal(t, info.Profile(), info.WithSecrets(true).WithSecrets(false).Profile())
}
