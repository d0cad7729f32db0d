package split_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/split"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// graph is what ComfyUI's web UI opens with, for eight pictures.
const graph = `{"3": {"class_type": "KSampler", "inputs": {"seed": 18446744073709551615, "steps": 20, "cfg": 8.0, "sampler_name": "euler",
	"scheduler": "normal", "denoise": 1, "model": ["4", 0], "positive": ["6", 0], "negative": ["7", 0], "latent_image": ["5", 0]}},
 "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}},
 "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 512, "batch_size": 8}},
 "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "sch\u00f6n \"[5, 0]\"", "clip": ["4", 1]}},
 "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "", "clip": ["4", 1]}},
 "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
 "9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "ComfyUI", "images": ["8", 0]}, "_meta": {"title": "Save"}}}`

func everyClass(string) bool { return true }

func TestFind(t *testing.T) {
	t.Parallel()
	p, ok := split.Find([]byte(graph), []string{"9"}, everyClass)
	require.True(t, ok)
	require.Equal(t, 8, p.Batch)

	more := func(nodes string) string { return strings.TrimSuffix(graph, "}") + ", " + nodes + "}" }
	for name, c := range map[string]struct {
		graph   string
		outputs string
		batch   int
	}{
		"one picture":                    {edit(`"batch_size": 8`, `"batch_size": 1`), "9", 0},
		"two pictures":                   {edit(`"batch_size": 8`, `"batch_size": 2`), "9", 2},
		"too many pictures":              {edit(`"batch_size": 8`, `"batch_size": 4097`), "9", 0},
		"a batch that another node says": {edit(`"batch_size": 8`, `"batch_size": ["4", 0]`), "9", 0},
		"a batch of half a picture":      {edit(`"batch_size": 8`, `"batch_size": 2.5`), "9", 0},
		"832 x 1216":                     {edit(`"width": 512, "height": 512`, `"width": 832, "height": 1216`), "9", 8},
		"1920 x 1080":                    {edit(`"width": 512, "height": 512`, `"width": 1920, "height": 1080`), "9", 8},
		"520 x 520: noise differs":       {edit(`"width": 512, "height": 512`, `"width": 520, "height": 520`), "9", 0},
		"no pixels":                      {edit(`"width": 512`, `"width": 4`), "9", 0},
		"16 channels":                    {edit("EmptyLatentImage", "EmptySD3LatentImage"), "9", 8},
		"latent pixels of 16":            {edit("EmptyLatentImage", "EmptyFlux2LatentImage"), "9", 8},
		"latent pixels of 16, 528 x 512": {editAll("EmptyLatentImage", "EmptyFlux2LatentImage", `"width": 512`, `"width": 528`), "9", 8},
		"latent pixels of 16, 528 x 528": {editAll("EmptyLatentImage", "EmptyFlux2LatentImage", `"width": 512, "height": 512`, `"width": 528, "height": 528`), "9", 0},
		"a film":                         {edit("EmptyLatentImage", "EmptyHunyuanLatentVideo"), "9", 0},
		"dpmpp_2m":                       {edit(`"euler"`, `"dpmpp_2m"`), "9", 8},
		"noise at each step":             {edit(`"euler"`, `"euler_ancestral"`), "9", 0},
		"noise of a tree":                {edit(`"euler"`, `"dpmpp_2m_sde"`), "9", 0},
		"steps by the batch's error":     {edit(`"euler"`, `"dpm_adaptive"`), "9", 0},
		"a sampler that nobody knows":    {edit(`"euler"`, `"mine"`), "9", 0},
		"a sampler that a node says":     {edit(`"euler"`, `["4", 0]`), "9", 0},
		"names count within the batch":   {edit(`"filename_prefix": "ComfyUI"`, `"filename_prefix": "a%batch_num%"`), "9", 0},
		"names by another node":          {edit(`"filename_prefix": "ComfyUI"`, `"filename_prefix": ["4", 0]`), "9", 0},
		"a class that nobody knows":      {edit("VAEDecode", "VAEDecodeMine"), "9", 0},
		"a preview":                      {more(`"10": {"class_type": "PreviewImage", "inputs": {"images": ["8", 0]}}`), "9,10", 8},
		"an unknown node beside":         {more(`"10": {"class_type": "Mine", "inputs": {"images": ["8", 0]}}`), "9", 8},
		"an unknown output":              {more(`"10": {"class_type": "Mine", "inputs": {"images": ["8", 0]}}`), "9,10", 0},
		"an output that is not there":    {graph, "9,10", 0},
		"an output without the batch":    {more(`"10": {"class_type": "SaveImage", "inputs": {"filename_prefix": "a", "images": ["4", 0]}}`), "9,10", 0},
		"no output":                      {graph, "", 0},
		"the batch as a condition":       {edit(`"positive": ["6", 0]`, `"positive": ["5", 0]`), "9", 0},
		"a second pass":                  {editAll(`"samples": ["3", 0]`, `"samples": ["10", 0]`, `{"3"`, `{"10": {"class_type": "KSamplerAdvanced", "inputs": {"sampler_name": "heun", "latent_image": ["3", 0]}}, "3"`), "9", 8},
		"two samplers of one latent":     {more(`"10": {"class_type": "KSampler", "inputs": {"sampler_name": "heun", "latent_image": ["5", 0]}}, "11": {"class_type": "VAEDecode", "inputs": {"samples": ["10", 0]}}, "12": {"class_type": "PreviewImage", "inputs": {"images": ["11", 0]}}`), "9,12", 8},
		"two latents":                    {more(`"13": {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 512, "batch_size": 8}}, "10": {"class_type": "KSampler", "inputs": {"sampler_name": "heun", "latent_image": ["13", 0]}}, "11": {"class_type": "VAEDecode", "inputs": {"samples": ["10", 0]}}, "12": {"class_type": "PreviewImage", "inputs": {"images": ["11", 0]}}`), "9,12", 0},
		"a circle":                       {edit(`"samples": ["3", 0], "vae": ["4", 2]`, `"samples": ["8", 0], "vae": ["8", 0]`), "9", 0},
		"a sampler without the latent":   {edit(`"latent_image": ["5", 0]`, `"latent_image": ["4", 0]`), "9", 0},
		"the text encoder of a picture":  {editAll("CheckpointLoaderSimple", "CLIPLoader", `"ckpt_name": "a.safetensors"`, `"type": "qwen_image"`), "9", 8},
		"the text encoder of a film":     {editAll("CheckpointLoaderSimple", "CLIPLoader", `"ckpt_name": "a.safetensors"`, `"type": "minimax"`), "9", 0},
		"an object as an input":          {edit(`"text": ""`, `"text": {"a": 1}`), "9", 0},
		"not a graph":                    {`[]`, "9", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, ok := split.Find([]byte(c.graph), strings.FieldsFunc(c.outputs, func(r rune) bool { return r == ',' }), everyClass)
			require.Equal(t, c.batch > 0, ok)
			if ok {
				require.Equal(t, c.batch, p.Batch)
			}
		})
	}
}

// A custom node in place of one of ComfyUI's may do anything, and the inserted one must be there.
func TestForeignClasses(t *testing.T) {
	t.Parallel()
	for _, foreign := range []string{"LatentFromBatch", "KSampler", "EmptyLatentImage", "CheckpointLoaderSimple", "SaveImage"} {
		_, ok := split.Find([]byte(graph), []string{"9"}, func(class string) bool { return class != foreign })
		require.False(t, ok, foreign)
	}
}

// Each part is the graph, byte by byte, but for the link to the latent and the node behind it.
func TestPartIsTheGraph(t *testing.T) {
	t.Parallel()
	taken := strings.Replace(graph, `"9": {`, `"comfyhub_part": {"class_type": "Note", "inputs": {}}, "9": {`, 1)
	for text, node := range map[string]string{graph: "comfyhub_part", taken: "comfyhub_part_2"} {
		p, ok := split.Find([]byte(text), []string{"9"}, everyClass)
		require.True(t, ok)
		parts := must.Get(p.Parts(3))(t)
		require.Len(t, parts, 3)
		for _, part := range parts {
			want := strings.Replace(text, `"latent_image": ["5", 0]`, `"latent_image": ["`+node+`", 0]`, 1)
			want = strings.TrimSuffix(want, "}") + fmt.Sprintf(`, "%s": {"class_type": "LatentFromBatch", "inputs": {"samples": ["5", 0], "batch_index": %d, "length": %d}}}`, node, part.From, part.Count)
			require.Equal(t, want, string(part.Graph))
		}
	}
}

// The parts cover the batch once, in order, and their sizes differ by one at most.
func TestPartsCoverTheBatch(t *testing.T) {
	t.Parallel()
	for batch := 2; batch <= 200; batch++ {
		p, ok := split.Find([]byte(edit(`"batch_size": 8`, fmt.Sprintf(`"batch_size": %d`, batch))), []string{"9"}, everyClass)
		require.True(t, ok)
		for _, k := range []int{-1, 0, 1, 2, 3, 7, split.MaxParts, 1000} {
			parts := must.Get(p.Parts(k))(t)
			n := min(k, batch, split.MaxParts)
			if n < 2 || (batch+n-1)/n > 64 {
				require.Empty(t, parts)
				continue
			}
			require.Len(t, parts, n)
			next := 0
			for _, part := range parts {
				require.Equal(t, next, part.From)
				require.Contains(t, []int{batch / n, (batch + n - 1) / n}, part.Count)
				next += part.Count
			}
			require.Equal(t, batch, next)
		}
	}
}

// What the parts put out is in the order of the batch, at each node.
func TestMerge(t *testing.T) {
	t.Parallel()
	for range 50 {
		batch, k := 2+rand.IntN(30), 2+rand.IntN(15)
		p, ok := split.Find([]byte(edit(`"batch_size": 8`, fmt.Sprintf(`"batch_size": %d`, batch))), []string{"9"}, everyClass)
		require.True(t, ok)
		parts := must.Get(p.Parts(k))(t)
		outputs := make([][]byte, len(parts))
		for i, part := range parts {
			outputs[i] = outputsOf(part.From, part.Count)
		}
		merged := must.Get(split.Merge(parts, outputs))(t)
		require.Equal(t, string(outputsOf(0, batch)), string(merged))
	}
}

// The files of a node get their names one right after the other, whatever other nodes save.
func TestPiecesOfABatch(t *testing.T) {
	t.Parallel()
	p, _ := split.Find([]byte(graph), []string{"9"}, everyClass)
	parts := must.Get(p.Parts(3))(t)
	var outputs [][]byte
	for _, part := range parts {
		outputs = append(outputs, outputsOf(part.From, part.Count))
	}
	pieces := must.Get(p.Pieces(parts, outputs))(t)
	var order []string
	for _, piece := range pieces {
		nodes := parse(t, piece.Outputs).Keys()
		require.Len(t, nodes, 1)
		order = append(order, fmt.Sprint(nodes[0], " of ", piece.Part))
	}
	require.Equal(t, []string{"9 of 0", "9 of 1", "9 of 2", "10 of 0", "10 of 1", "10 of 2"}, order)
	require.Equal(t, string(outputsOf(0, p.Batch)), string(must.Get(p.Join(parts, pieces))(t)))
	_, err := p.Pieces(parts, outputs[1:])
	require.ErrorIs(t, err, split.ErrOutputs)
}

// A part that lies about its outputs makes no outputs of the whole.
func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	p, _ := split.Find([]byte(graph), []string{"9"}, everyClass)
	parts, err := p.Parts(2)
	require.NoError(t, err)
	good := outputsOf(0, 4)
	for name, bad := range map[string]string{
		"a picture less": string(outputsOf(4, 3)), "a picture more": string(outputsOf(4, 5)), "no nodes": `{}`,
		"another node": strings.Replace(string(outputsOf(4, 4)), `"9"`, `"11"`, 1), "no object": `[]`, "no JSON": `{`,
		"more than pictures": strings.Replace(string(outputsOf(4, 4)), `"images"`, `"text": [], "images"`, 1), "no list": `{"9": {"images": 4}, "10": {"images": 4}}`,
	} {
		for _, outputs := range [][][]byte{{good, []byte(bad)}, {[]byte(bad), good}} {
			_, err := split.Merge(parts, outputs)
			require.ErrorIs(t, err, split.ErrOutputs, name)
		}
	}
	_, err = split.Merge(parts, [][]byte{good})
	require.ErrorIs(t, err, split.ErrOutputs)
}

// Whatever the graph is, its parts are graphs of the same nodes and one more.
func FuzzFind(f *testing.F) {
	for _, text := range []string{graph, edit(`"5": {`, `"5": {}, "5": {`), edit(`"latent_image"`, `"latent_image": 1, "latent_image"`), `{}`, `{"9": 1}`} {
		f.Add([]byte(text), "9", 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, output string, k int) {
		p, ok := split.Find(text, []string{output}, everyClass)
		if !ok {
			return
		}
		parts := must.Get(p.Parts(k))(t)
		whole := parse(t, text)
		require.False(t, whole.Has(p.Node))
		for _, part := range parts {
			one := parse(t, part.Graph)
			require.Equal(t, append(whole.Keys(), p.Node), one.Keys())
			_, again := split.Find(part.Graph, []string{output}, everyClass)
			require.False(t, again, "a part is not split")
		}
	})
}

func parse(t *testing.T, text []byte) *pyjson.Object {
	t.Helper()
	v := must.Get(pyjson.Parse(text))(t)
	o, ok := v.(*pyjson.Object)
	require.True(t, ok)
	return o
}

// outputsOf are the outputs of two nodes, with the pictures from one on.
func outputsOf(from, count int) []byte {
	var all []string
	for i := range count {
		all = append(all, fmt.Sprintf(`{"filename": "%d.png", "subfolder": "", "type": "output"}`, from+i))
	}
	list := strings.Join(all, ", ")
	return []byte(`{"9": {"images": [` + list + `]}, "10": {"images": [` + list + `]}}`)
}

func edit(old, replacement string) string { return editAll(old, replacement) }

func editAll(pairs ...string) string {
	text := graph
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			panic("no " + pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// The parts of a batch make the pictures that the whole batch makes, each at its place, and what
// ComfyUI has in the history of each part can be put together.
func TestSamePictures(t *testing.T) {
	t.Parallel()
	const batch = 5
	text := editAll(`"width": 512, "height": 512, "batch_size": 8`, fmt.Sprintf(`"width": 64, "height": 128, "batch_size": %d`, batch), `"steps": 20`, `"steps": 2`)
	plan, ok := split.Find([]byte(text), []string{"9"}, everyClass)
	require.True(t, ok)
	parts := must.Get(plan.Parts(2))(t)
	var pieces []string
	var outputs [][]byte
	for _, part := range parts {
		output, pictures := render(t, string(part.Graph), part.Count)
		pieces, outputs = append(pieces, pictures...), append(outputs, output)
	}
	_, all := render(t, text, batch)
	for n := range batch {
		require.Zero(t, strings.Compare(all[n], pieces[n]), "picture %d", n) // the bytes say nothing to a reader
		require.False(t, n > 0 && all[n] == all[n-1], "picture %d is that before it", n)
	}
	merged := must.Get(split.Merge(parts, outputs))(t)
	require.Equal(t, batch, strings.Count(string(merged), `"filename"`))
}

// render has a graph run by a server of its own, and returns its outputs and its pictures.
func render(t *testing.T, graph string, count int) (outputs []byte, pictures []string) {
	t.Helper()
	const id = "7b9b9b5e-0d6c-4c1e-9a53-3f6f0a1d2c11"
	server, err := sim.New(sim.Config{Version: "0.33.0", Dir: t.TempDir(), TimeScale: 0.01, Models: map[string][]string{"checkpoints": {"a.safetensors"}}})
	require.NoError(t, err)
	web := httptest.NewServer(server.Handler())
	defer web.Close()
	defer server.Close()
	read := func(resp *http.Response, err error) []byte {
		t.Helper()
		require.NoError(t, err)
		defer resp.Body.Close()
		body := must.Get(io.ReadAll(resp.Body))(t)
		require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
		return body
	}
	read(http.Post(web.URL+"/prompt", "application/json", strings.NewReader(`{"prompt_id": "`+id+`", "prompt": `+graph+`}`)))
	var history map[string]struct {
		Outputs json.RawMessage `json:"outputs"`
	}
	require.Eventually(t, func() bool {
		return json.Unmarshal(read(http.Get(web.URL+"/history/"+id)), &history) == nil && len(history) == 1
	}, 20*time.Second, 5*time.Millisecond)
	for n := range count {
		pictures = append(pictures, string(read(http.Get(fmt.Sprintf("%s/view?filename=ComfyUI_%05d_.png&channel=rgb", web.URL, n+1)))))
	}
	return history[id].Outputs, pictures
}
