package catalog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A refusal speaks for another instance only where nothing but the description
// of the class and the inputs can be its reason.
func TestRefusesAlike(t *testing.T) {
	t.Parallel()
	const described = `{"Load":{"input":{"required":{"file":[["a.pt","b.pt"],{}],"mode":[["fast","slow"],{}],"n":["INT",{"min":0,"max":9}]},
"optional":{"text":["STRING",{}]}},"output":["THING"],"output_node":false,"python_module":"custom_nodes.pack"},
"Show":{"input":{"required":{"thing":["OTHER",{}]}},"output":[],"output_node":true,"python_module":"custom_nodes.pack"}}`
	const inputs = `"n":10,"mode":"odd"`
	const own = "custom_validation_failed"
	for name, c := range map[string]struct {
		inputs string // of the node of class Load
		errors string
		other  string // what differs at the other instance
		want   bool
	}{
		"a bound":                        {errors: refusals("1", "Load", "value_bigger_than_max", `{"input_name": "n"}`), want: true},
		"a bound beside a file":          {inputs: `"n":10,"file":"c.pt"`, errors: refusals("1", "Load", "value_bigger_than_max", `{"input_name": "n"}`), want: true},
		"a link":                         {errors: refusals("2", "Show", "return_type_mismatch", `{"input_name": "thing"}`), want: true},
		"an option":                      {errors: refusals("1", "Load", "value_not_in_list", `{"input_name": "mode"}`), want: true},
		"a file":                         {inputs: `"file":"c.pt"`, errors: refusals("1", "Load", "value_not_in_list", `{"input_name": "file"}`)},
		"an input that was not given":    {errors: refusals("1", "Load", "value_not_in_list", `{"input_name": "file"}`)},
		"its own code, with numbers":     {inputs: `"n":1,"mode":"fast"`, errors: refusals("1", "Load", own, `{}`), want: true},
		"its own code, with a file":      {inputs: `"n":1,"file":"a.pt"`, errors: refusals("1", "Load", own, `{}`)},
		"its own code, with a text":      {inputs: `"n":1,"text":"/data/video"`, errors: refusals("1", "Load", own, `{}`)},
		"its own code, with a list":      {inputs: `"n":["a"]`, errors: refusals("1", "Load", own, `{}`)},
		"its own code, with more inputs": {inputs: `"n":1,"hidden":"x"`, errors: refusals("1", "Load", own, `{}`)},
		"its own code, with a link":      {errors: refusals("2", "Show", own, `{}`), want: true},
		"another description":            {errors: refusals("1", "Load", "value_bigger_than_max", `{}`), other: `"max":9`},
		"another source of a link":       {errors: refusals("2", "Show", "return_type_mismatch", `{}`), other: `"max":9`},
		"another class differs":          {errors: refusals("1", "Load", "value_bigger_than_max", `{}`), other: `"OTHER"`, want: true},
		"the class is not there":         {errors: refusals("1", "Load", "value_bigger_than_max", `{}`), other: `"Load"`},
		"an unknown class":               {errors: refusals("1", "Nope", "value_bigger_than_max", `{}`)},
		"another node":                   {errors: refusals("7", "Load", "value_bigger_than_max", `{}`)},
		"one good reason of two": {errors: strings.TrimSuffix(refusals("1", "Load", "value_bigger_than_max", `{}`), "}") + "," +
			strings.TrimPrefix(refusals("2", "Nope", own, `{}`), "{")},
		"no reason":        {errors: `{"1": {"errors": [], "class_type": "Load"}}`},
		"nothing":          {errors: `{}`},
		"a list of nodes":  {errors: `[]`},
		"half an object":   {errors: `{"1": `},
		"errors of nobody": {errors: `{"1": {"errors": [null], "class_type": "Load"}}`, inputs: `"text":"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.inputs == "" {
				c.inputs = inputs
			}
			other := described
			if c.other != "" {
				other = strings.Replace(described, c.other, strings.NewReplacer("9", "8", "OTHER", "THIRD", "Load", "Gone").Replace(c.other), 1)
				require.NotEqual(t, described, other)
			}
			graph := `{"1":{"class_type":"Load","inputs":{` + c.inputs + `}},"2":{"class_type":"Show","inputs":{"thing":["1",0]}}}`
			require.Equal(t, c.want, parseInfo(t, described).RefusesAlike(parseInfo(t, other), []byte(graph), []byte(c.errors)))
		})
	}
}
