package split_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/split"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// branches are graphs with one sampler for each of some steps, which share a model and a text; the
// sampler of branch n is "k<n>", its output is "o<n>".
func branches(steps ...int) string {
	all := []string{
		`"m": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}}`,
		`"t": {"class_type": "CLIPTextEncode", "inputs": {"text": "a tree", "clip": ["m", 1]}}`,
		`"l": {"class_type": "EmptyLatentImage", "inputs": {"width": 520, "height": 520, "batch_size": 1}}`,
	}
	for n, s := range steps {
		all = append(all,
			fmt.Sprintf(`"k%d": {"class_type": "KSampler", "inputs": {"seed": %d, "steps": %d, "sampler_name": "euler_ancestral", "model": ["m", 0], "positive": ["t", 0], "negative": ["t", 0], "latent_image": ["l", 0]}}`, n, n, s),
			fmt.Sprintf(`"d%d": {"class_type": "VAEDecode", "inputs": {"samples": ["k%d", 0], "vae": ["m", 2]}}`, n, n),
			fmt.Sprintf(`"o%d": {"class_type": "SaveImage", "inputs": {"filename_prefix": "ComfyUI", "images": ["d%d", 0]}}`, n, n))
	}
	return "{" + strings.Join(all, ", ") + "}"
}

func outputIDs(n int) (ids []string) {
	for i := range n {
		ids = append(ids, "o"+strconv.Itoa(i))
	}
	return ids
}

// A graph comes apart into the outputs that share nothing but what gives the same each time.
func TestFindBranches(t *testing.T) {
	t.Parallel()
	more := func(text, nodes string) string { return strings.TrimSuffix(text, "}") + ", " + nodes + "}" }
	swap := func(text string, pairs ...string) string {
		for i := 0; i < len(pairs); i += 2 {
			require.Contains(t, text, pairs[i])
			text = strings.Replace(text, pairs[i], pairs[i+1], 1)
		}
		return text
	}
	two, three := branches(20, 20), branches(20, 20, 20)
	many := branches(make([]int, split.MaxOutputs+1)...)
	for name, c := range map[string]struct {
		graph   string
		outputs []string
		// apart are the outputs of the parts, if there are as many as can be.
		apart []string
	}{
		"two branches":                        {two, outputIDs(2), []string{"o0", "o1"}},
		"one of three is not wanted":          {three, []string{"o0", "o2"}, []string{"o0", "o2"}},
		"one output":                          {two, []string{"o1"}, nil},
		"no outputs":                          {two, nil, nil},
		"an output that is not there":         {two, []string{"o0", "o7"}, nil},
		"an output that may do anything":      {swap(two, "SaveImage", "CheckpointSave"), outputIDs(2), nil},
		"an output that only shows":           {swap(two, "SaveImage", "PreviewImage"), outputIDs(2), []string{"o0", "o1"}},
		"an output reads another":             {swap(three, `"images": ["d1", 0]`, `"images": ["o0", 0]`), outputIDs(3), []string{"o0 o1", "o2"}},
		"all outputs in a row":                {swap(two, `"images": ["d1", 0]`, `"images": ["o0", 0]`), outputIDs(2), nil},
		"two share what is saved on the way":  {more(swap(three, `"images": ["d1", 0]`, `"images": ["s", 0]`, `"images": ["d2", 0]`, `"images": ["s", 0]`), `"s": {"class_type": "SaveImage", "inputs": {"filename_prefix": "b", "images": ["d0", 0]}}`), outputIDs(3), []string{"o0", "o1 o2"}},
		"two share chance":                    {swap(more(three, `"r": {"class_type": "RandomThing", "inputs": {}}`), `"seed": 0`, `"seed": ["r", 0]`, `"seed": 2`, `"seed": ["r", 0]`), outputIDs(3), []string{"o0 o2", "o1"}},
		"chance in one branch":                {swap(more(two, `"r": {"class_type": "RandomThing", "inputs": {}}`), `"seed": 0`, `"seed": ["r", 0]`), outputIDs(2), []string{"o0", "o1"}},
		"two share a sampler":                 {swap(two, `"samples": ["k1", 0]`, `"samples": ["k0", 0]`), outputIDs(2), []string{"o0", "o1"}},
		"two share a sampler without a seed":  {swap(two, `"samples": ["k1", 0]`, `"samples": ["k0", 0]`, "KSampler", "KSamplerAdvanced", `"seed": 0`, `"add_noise": "disable"`), outputIDs(2), nil},
		"chains of sharing":                   {swap(more(three, `"r": {"class_type": "RandomThing", "inputs": {}}, "q": {"class_type": "RandomThing", "inputs": {}}`), `"seed": 0`, `"seed": ["r", 0]`, `"seed": 1, "steps": 20`, `"seed": ["r", 0], "steps": ["q", 0]`, `"seed": 2`, `"seed": ["q", 0]`), outputIDs(3), nil},
		"a node that is not there":            {swap(two, `["k1", 0]`, `["k9", 0]`), outputIDs(2), nil},
		"a node without inputs":               {swap(two, `"inputs": {"ckpt_name": "a.safetensors"}`, `"a": 1`), outputIDs(2), nil},
		"a node of a pack":                    {swap(two, "VAEDecode", "Foreign"), outputIDs(2), nil},
		"a node of a pack that is not needed": {more(two, `"f": {"class_type": "Foreign", "inputs": {"x": ["d0", 0]}}`), outputIDs(2), []string{"o0", "o1"}},
		"a link that Python takes for one":    {swap(two, `"images": ["d1", 0]`, `"images": ["o0", false]`), outputIDs(2), nil},
		"more outputs than there may be":      {many, outputIDs(split.MaxOutputs + 1), nil},
		"as many as there may be":             {many, outputIDs(split.MaxOutputs), outputIDs(split.MaxOutputs)},
		"not a graph":                         {`[]`, outputIDs(2), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core := func(class string) bool { return class != "Foreign" }
			b, ok := split.FindBranches([]byte(c.graph), c.outputs, core)
			require.Equal(t, c.apart != nil, ok)
			if !ok {
				return
			}
			var sets []split.Outputs
			for _, unit := range c.apart {
				var set split.Outputs
				for id := range strings.FieldsSeq(unit) {
					set |= 1 << slices.Index(c.outputs, id)
				}
				sets = append(sets, set)
			}
			parts := b.Parts(sets)
			require.Len(t, parts, len(c.apart))
			for n, part := range parts {
				require.Equal(t, c.graph, string(part.Graph))
				require.Equal(t, c.apart[n], strings.Join(part.Outputs, " "))
			}
			for n, set := range sets { // and no further
				for one := split.Outputs(1); one < set; one <<= 1 {
					if one&set != 0 && one != set {
						require.Nil(t, b.Parts(slices.Replace(slices.Clone(sets), n, n+1, one, set&^one)))
					}
				}
			}
			require.Nil(t, b.Parts(sets[1:]), "an output is missing")
			require.Nil(t, b.Parts(append(sets, 0)), "a part makes nothing")
			require.Nil(t, b.Parts(append(sets, sets[0])), "twice")
			require.Equal(t, sets[0], b.Rest(sets[1:]))
		})
	}
}

func seconds(by map[string]float64) map[string]time.Duration {
	out := map[string]time.Duration{}
	for class, s := range by {
		out[class] = time.Duration(s * float64(time.Second))
	}
	return out
}

// Whoever posts a graph of the most outputs, nodes and links keeps a hub busy for no longer than it takes to
// read the graph a few times; a larger one is not looked at.
func TestLargeBranches(t *testing.T) {
	t.Parallel()
	graph := func(nodes, links int) string {
		var text strings.Builder
		for n := range 60 {
			fmt.Fprintf(&text, `"o%d": {"class_type": "SaveImage", "inputs": {`, n)
			for l := range links / 60 {
				fmt.Fprintf(&text, `"i%d": ["n%d", 0], `, l, (l*(n+1)+n)%nodes)
			}
			text.WriteString(`"images": ["n0", 0]}}, `)
		}
		for n := range nodes {
			fmt.Fprintf(&text, `"n%d": {"class_type": "EmptyImage", "inputs": {"steps": NaN}}, `, n)
		}
		return "{" + strings.TrimSuffix(text.String(), ", ") + "}"
	}
	for _, c := range []struct {
		nodes, links int
		want         bool
	}{{900, 9000, true}, {941, 9000, false}, {900, 11_000, false}} {
		b, ok := split.FindBranches([]byte(graph(c.nodes, c.links)), outputIDs(60), everyClass)
		require.Equal(t, c.want, ok, "%d nodes and %d links", c.nodes, c.links)
		if !ok {
			continue
		}
		sets := b.Divide(seconds(map[string]float64{"SaveImage": 400, "EmptyImage": 100}), make([]time.Duration, 20), time.Second)
		require.NotNil(t, b.Parts(sets))
	}
}

// Outputs are made apart if that saves more time than it takes twice.
func TestDivide(t *testing.T) {
	t.Parallel()
	warm := func(n int) []time.Duration { return make([]time.Duration, n) }
	for name, c := range map[string]struct {
		steps []int
		spent map[string]float64
		loads []time.Duration
		want  []split.Outputs
	}{
		"four equal branches":                 {[]int{20, 20, 20, 20}, map[string]float64{"KSampler": 40}, warm(3), []split.Outputs{1, 2, 4, 8}},
		"more instances than branches":        {[]int{20, 20}, map[string]float64{"KSampler": 40}, warm(7), []split.Outputs{1, 2}},
		"fewer instances than branches":       {[]int{20, 20, 20, 20}, map[string]float64{"KSampler": 40}, warm(1), []split.Outputs{0b0101, 0b1010}},
		"nobody helps":                        {[]int{20, 20}, map[string]float64{"KSampler": 40}, nil, nil},
		"nothing is known":                    {[]int{20, 20}, nil, warm(3), nil},
		"two short ones together":             {[]int{10, 10, 20}, map[string]float64{"KSampler": 40}, warm(1), []split.Outputs{0b011, 0b100}},
		"a long one and short ones":           {[]int{10, 60, 10, 10}, map[string]float64{"KSampler": 90}, warm(2), []split.Outputs{0b0010, 0b1101}},
		"what they share is short":            {[]int{20, 20}, map[string]float64{"KSampler": 40, "CLIPTextEncode": 1}, warm(1), []split.Outputs{1, 2}},
		"what they share is longer":           {[]int{20, 20}, map[string]float64{"KSampler": 40, "CLIPTextEncode": 21}, warm(1), nil},
		"fewer parts, since each loads":       {[]int{20, 20, 20, 20}, map[string]float64{"KSampler": 40, "CheckpointLoaderSimple": 11}, warm(3), []split.Outputs{0b0101, 0b1010}},
		"a cold instance":                     {[]int{20, 20}, map[string]float64{"KSampler": 40}, []time.Duration{5 * time.Second}, []split.Outputs{1, 2}},
		"an instance that loads for too long": {[]int{20, 20}, map[string]float64{"KSampler": 40}, []time.Duration{11 * time.Second}, nil},
		"one of two loads for too long":       {[]int{20, 20, 20}, map[string]float64{"KSampler": 30}, []time.Duration{0, 15 * time.Second}, []split.Outputs{0b101, 0b010}},
		"it saves too little":                 {[]int{20, 20}, map[string]float64{"KSampler": 3}, warm(1), nil},
		"all time goes where both go":         {[]int{20, 20}, map[string]float64{"CLIPTextEncode": 40}, warm(1), nil},
		"a class that the graph has not":      {[]int{20, 20}, map[string]float64{"Other": 40}, warm(1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, ok := split.FindBranches([]byte(branches(c.steps...)), outputIDs(len(c.steps)), everyClass)
			require.True(t, ok)
			require.Equal(t, c.want, b.Divide(seconds(c.spent), c.loads, 2*time.Second))
		})
	}
}

// What shares a sampler stays together.
func TestDivideKeepsSharersTogether(t *testing.T) {
	t.Parallel()
	text := strings.TrimSuffix(branches(20, 20), "}")
	for n := range 2 {
		text += fmt.Sprintf(`, "o%d": {"class_type": "PreviewImage", "inputs": {"images": ["d%d", 0]}}`, n+2, n)
	}
	b, ok := split.FindBranches([]byte(text+"}"), outputIDs(4), everyClass)
	require.True(t, ok)
	require.Equal(t, []split.Outputs{0b0101, 0b1010}, b.Divide(seconds(map[string]float64{"KSampler": 40}), make([]time.Duration, 3), time.Second))
}

// Whatever the branches are, the parts are all outputs, each once, and a division is worth it.
func TestDivisionsAreSound(t *testing.T) {
	t.Parallel()
	for range 300 {
		steps := make([]int, 2+rand.IntN(12))
		for n := range steps {
			steps[n] = 1 + rand.IntN(40)
		}
		loads := make([]time.Duration, 1+rand.IntN(6))
		for n := range loads {
			loads[n] = time.Duration(rand.IntN(5)) * time.Second
		}
		slices.Sort(loads)
		b, ok := split.FindBranches([]byte(branches(steps...)), outputIDs(len(steps)), everyClass)
		require.True(t, ok)
		sets := b.Divide(seconds(map[string]float64{"KSampler": 100 * rand.Float64(), "CLIPTextEncode": 10 * rand.Float64()}), loads, time.Second)
		if sets == nil {
			continue
		}
		require.LessOrEqual(t, len(sets), len(loads)+1)
		require.NotNil(t, b.Parts(sets))
	}
}

// What parts have put out is in the order of the graph, each output once.
func TestPieces(t *testing.T) {
	t.Parallel()
	b, _ := split.FindBranches([]byte(branches(20, 20, 20)), outputIDs(3), everyClass)
	parts := b.Parts([]split.Outputs{0b101, 0b010})
	put := func(nodes ...string) []byte {
		var all []string
		for _, node := range nodes {
			id, file, _ := strings.Cut(node, "=")
			all = append(all, fmt.Sprintf(`%q: {"images": [{"filename": %q}]}`, id, file))
		}
		return []byte("{" + strings.Join(all, ", ") + "}")
	}
	// x is no output, and both parts have run it.
	pieces, err := b.Pieces(parts, [][]byte{put("x=x", "o2=c", "o0=a"), put("o1=b", "x=y")})
	require.NoError(t, err)
	require.Equal(t, []split.Piece{{Part: 0, Outputs: put("o0=a")}, {Part: 1, Outputs: put("o1=b")}, {Part: 0, Outputs: put("o2=c")}, {Part: 0, Outputs: put("x=x")}}, pieces)
	require.Equal(t, string(put("o0=a", "o1=b", "o2=c", "x=x")), string(must.Get(b.Join(parts, pieces))(t)))

	good := put("o0=a", "o2=c")
	for name, bad := range map[string][]byte{
		"an output is missing": put(), "another part's output": put("o1=b", "o0=a"), "no object": []byte("[]"), "no JSON": []byte("{"), "an output is no object": []byte(`{"o1": 1}`),
	} {
		_, err := b.Pieces(parts, [][]byte{good, bad})
		require.ErrorIs(t, err, split.ErrOutputs, name)
	}
	_, err = b.Pieces(parts, [][]byte{good})
	require.ErrorIs(t, err, split.ErrOutputs)
}

// A server that would make all outputs gets just what some need.
func TestOnly(t *testing.T) {
	t.Parallel()
	var nodes map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(must.Get(split.Only([]byte(branches(20, 30)), []string{"o1"}))(t), &nodes))
	var ids []string
	for id := range nodes {
		ids = append(ids, id)
	}
	require.ElementsMatch(t, []string{"m", "t", "l", "k1", "d1", "o1"}, ids)
	_, err := split.Only([]byte("{"), nil)
	require.Error(t, err)
}

// The first of several members of a name counts.
func TestUnion(t *testing.T) {
	t.Parallel()
	require.JSONEq(t, `{"a": 1, "b": 2, "c": 3}`, string(must.Get(split.Union([][]byte{[]byte(`{"a": 1, "b": 2}`), []byte(`{"b": 4, "c": 3}`)}))(t)))
	_, err := split.Union([][]byte{[]byte(`{}`), nil})
	require.ErrorIs(t, err, split.ErrOutputs)
}

// Whatever the graph is, its parts are that graph, for all outputs once.
func FuzzFindBranches(f *testing.F) {
	for _, text := range []string{branches(20, 20), graph, `{"o0": {"class_type": "SaveImage", "inputs": {"a": ["o0", 0]}}, "o1": {"class_type": "SaveImage", "inputs": {}}}`, `{}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := pyjson.Parse(text)
		nodes, ok := v.(*pyjson.Object)
		if err != nil || !ok {
			return
		}
		b, ok := split.FindBranches(text, nodes.Keys(), everyClass)
		if !ok {
			return
		}
		spent := map[string]time.Duration{}
		for _, class := range b.Classes() {
			spent[class] = time.Minute
		}
		if sets := b.Divide(spent, make([]time.Duration, 4), time.Second); sets != nil {
			require.NotNil(t, b.Parts(sets))
		}
	})
}
