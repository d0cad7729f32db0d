package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
)

const lessonGraph = `{"1":{"class_type":"Load","inputs":{"name":"c.pt","n":10}},"2":{"class_type":"Show","inputs":{"thing":["1",0]}}}`

// refusals are an instance's node_errors with one error of one node.
func refusals(node, class, kind, extra string) string {
	return fmt.Sprintf(`{%q: {"errors": [{"type": %q, "message": "", "details": "", "extra_info": %s}], "dependent_outputs": ["2"], "class_type": %q}}`,
		node, kind, extra, class)
}

func TestLessons(t *testing.T) {
	t.Parallel()
	i := parseInfo(t, custom)
	value := catalog.Question{Class: "Load", Input: "n"}
	link := catalog.Question{Class: "Show", Input: "thing", Source: "Load", Type: "THING"}
	for name, c := range map[string]struct {
		errors string
		want   []catalog.Question
	}{
		"a bound":               {refusals("1", "Load", "value_bigger_than_max", `{"input_name": "n", "received_value": 10}`), []catalog.Question{value}},
		"a list":                {refusals("1", "Load", "value_not_in_list", `{"input_name": "name"}`), []catalog.Question{{Class: "Load", Input: "name"}}},
		"a link":                {refusals("2", "Show", "return_type_mismatch", `{"input_name": "thing", "received_type": "THING", "linked_node": ["1", 0]}`), []catalog.Question{link}},
		"the class's own check": {refusals("1", "Load", "custom_validation_failed", `{"input_name": "n"}`), nil},
		"no input":              {refusals("1", "Load", "value_bigger_than_max", `{}`), nil},
		"a link to nowhere":     {refusals("2", "Show", "return_type_mismatch", `{"input_name": "thing", "received_type": "THING", "linked_node": ["7", 0]}`), nil},
		"half a link":           {refusals("2", "Show", "return_type_mismatch", `{"input_name": "thing", "received_type": "THING", "linked_node": ["1"]}`), nil},
		"a node not asked for":  {refusals("7", "Load", "value_bigger_than_max", `{"input_name": "n"}`), nil},
		"another class":         {refusals("1", "Show", "value_bigger_than_max", `{"input_name": "n"}`), nil},
		"no errors":             {`{"1": {"class_type": "Load"}}`, nil},
		"a list of nodes":       {`[]`, nil},
		"no JSON":               {`{"1": `, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			for _, q := range c.want {
				lesson, ok := i.Lesson(q)
				require.True(t, ok)
				want = append(want, lesson)
			}
			require.Equal(t, want, i.Lessons([]byte(lessonGraph), []byte(c.errors)))
		})
	}
}

// A lesson is of the exact description of a class: with another one it is not known.
func TestLessonOfAnotherDescription(t *testing.T) {
	t.Parallel()
	q := catalog.Question{Class: "Show", Input: "thing", Source: "Load", Type: "THING"}
	lesson, ok := parseInfo(t, custom).Lesson(q)
	require.True(t, ok)
	for _, change := range []string{`"max":9`, `"OTHER"`} { // of the source, of the class
		other, ok := parseInfo(t, strings.Replace(custom, change, strings.Replace(strings.Replace(change, "9", "8", 1), "OTHER", "THIRD", 1), 1)).Lesson(q)
		require.True(t, ok)
		require.NotEqual(t, lesson, other, change)
	}
	_, ok = parseInfo(t, custom).Lesson(catalog.Question{Class: "None", Input: "n"})
	require.False(t, ok)
}

// device is a class of ComfyUI's own that comes with the extras, and may take more than it lists.
func device(name, options string) string {
	return `{"` + name + `":{"input":{"required":{"device":["COMBO",{"options":[` + options + `]}],"n":["INT",{"max":9}]}},"output":[],"output_node":true,"python_module":"comfy_extras.nodes_x"}}`
}

// ComfyUI's extras are asked before a value is refused that they do not list, once for all
// instances of a version, whatever files these have.
func TestExtrasJudgeTheirLists(t *testing.T) {
	t.Parallel()
	one, other := parseInfo(t, device("Pick", `"cpu"`)), parseInfo(t, device("Pick", `"cpu","gpu:0"`))
	const graph = `{"1":{"class_type":"Pick","inputs":{"device":"gpu:1","n":1}}}`
	prompt := catalog.Prompt{Graph: parseGraph(t, graph), Version: newer}
	verdict := fleet(one, other).Validate(prompt)
	require.True(t, verdict.Accepted())
	require.True(t, verdict.Doubtful)
	require.Equal(t, []string{"1: value_not_in_list"}, verdict.Unsure)
	require.False(t, validate(t, fleet(one), newer, strings.Replace(graph, `"n":1`, `"n":10`, 1)).Accepted(), "bounds are not in doubt")

	lessons := one.Lessons([]byte(graph), []byte(refusals("1", "Pick", "value_not_in_list", `{"input_name": "device"}`)))
	require.Len(t, lessons, 1)
	require.True(t, catalog.OfComfyUI(lessons[0]))
	require.Empty(t, one.Lessons([]byte(graph), []byte(refusals("1", "Pick", "value_bigger_than_max", `{"input_name": "n"}`))))
	same, ok := other.Lesson(catalog.Question{Class: "Pick", Input: "device"})
	require.True(t, ok)
	require.Equal(t, lessons[0], same)
	prompt.Makes = func(q catalog.Question) bool { return q == catalog.Question{Class: "Pick", Input: "device"} }
	require.False(t, fleet(one, other).Validate(prompt).Accepted())
}

// A class that is known to take any value is not asked, and a machine that lists the value is no better.
func TestAnyDevice(t *testing.T) {
	t.Parallel()
	one, other := parseInfo(t, device("SelectModelDevice", `"cpu","gpu:0","gpu:1"`)), parseInfo(t, device("SelectModelDevice", `"cpu"`))
	cat := fleet(one, other)
	graph := parseGraph(t, `{"1":{"class_type":"SelectModelDevice","inputs":{"device":"gpu:1","n":1}}}`)
	needs := cat.Requirements(graph, nil, nil)
	require.Empty(t, needs.Choices)
	require.Empty(t, needs.Lists)
	require.Empty(t, other.Satisfies(needs))
	prompt := catalog.Prompt{Graph: parseGraph(t, `{"1":{"class_type":"SelectModelDevice","inputs":{"device":"gpu:7","n":1}}}`), Version: newer}
	prompt.Makes = func(catalog.Question) bool { return true }
	require.True(t, cat.Validate(prompt).Accepted())
}

// Other classes of ComfyUI's own are checked by the hub itself, so nothing is learnt of them.
func TestNoLessonsOfComfyUIsOwnClasses(t *testing.T) {
	t.Parallel()
	errors := refusals("1", "EmptyImage", "value_bigger_than_max", `{"input_name": "width"}`)
	require.Empty(t, info(t, older).Lessons([]byte(`{"1":{"class_type":"EmptyImage","inputs":{"width":100000}}}`), []byte(errors)))
}

// One refusal teaches a bounded number of lessons, whatever an instance says.
func FuzzLessons(f *testing.F) {
	f.Add([]byte(lessonGraph), []byte(refusals("1", "Load", "value_bigger_than_max", `{"input_name": "n"}`)))
	f.Add([]byte(lessonGraph), []byte(refusals("2", "Show", "return_type_mismatch", `{"input_name": "thing", "received_type": "THING", "linked_node": ["1", 0]}`)))
	many := strings.Repeat(`{"type": "value_bigger_than_max", "extra_info": {"input_name": "n"}},`, 200)
	f.Add([]byte(lessonGraph), []byte(`{"1": {"errors": [`+many+`null], "class_type": "Load"}}`))
	i, err := catalog.Parse([]byte(custom))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, graph, nodeErrors []byte) {
		if got := len(i.Lessons(graph, nodeErrors)); got > 100 {
			t.Fatalf("%d lessons", got)
		}
	})
}
