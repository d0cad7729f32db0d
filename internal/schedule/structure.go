package schedule

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Structure is what a graph's run time depends on. Graphs that differ only in seeds, texts, names
// of users' files, node ids and sizes have the same Key.
type Structure struct {
	// Key is a hash of the classes, the wiring, the models and the samplers.
	Key string
	// Kind is a hash of the classes of the last nodes, those that no other node reads.
	Kind string
	// Models is a hash of the models' names; empty for a graph that loads none.
	Models string
	// Work grows with the run time: steps x pixels x batch x frames x seconds, each of them 1 if
	// the graph does not say. Steps in a loop count as often as it runs.
	Work float64
	// Nodes is the number of nodes in the graph.
	Nodes int
}

// choices are inputs whose text is one of a few that change the run time. Other texts may be a
// user's.
var choices = map[string]bool{"sampler_name": true, "upscale_method": true, "weight_dtype": true}

// node is the part of a node that matters here.
type node struct {
	class  string
	inputs *pyjson.Object
	// links are its inputs that come from other nodes of the graph.
	links []link
	hash  string
	// waits is how many links lead to nodes without a final hash.
	waits int
	// readers is how many links lead here.
	readers int
	// times is how often it runs in its loops.
	times float64
	// inside is how often what is in the loop runs that the node starts; 0 if it starts none.
	// samples says that something in there has steps.
	inside  float64
	samples bool
}

type link struct {
	name, source, output string
}

// Read returns the structure of a graph in ComfyUI's API format; false if it is not one.
func Read(graph []byte) (Structure, bool) {
	v, err := pyjson.Parse(graph)
	if err != nil {
		return Structure{}, false
	}
	return Parsed(v)
}

// Parsed is Read for a graph that has been parsed.
func Parsed(v pyjson.Value) (Structure, bool) {
	o, ok := v.(*pyjson.Object)
	if !ok || o.Len() == 0 {
		return Structure{}, false
	}
	nodes := readNodes(o)
	models := label(nodes)
	repeat(nodes, spread(nodes))
	var all, last []string
	for _, n := range nodes {
		// Two identical nodes that are read once each differ from one that is read twice.
		all = append(all, n.hash+strconv.Itoa(n.readers))
		if n.readers == 0 {
			last = append(last, n.class)
		}
	}
	slices.Sort(models)
	s := Structure{Key: hashOf(all)[:24], Kind: hashOf(last)[:12], Work: work(nodes), Nodes: len(nodes)}
	if models = slices.Compact(models); len(models) > 0 {
		s.Models = hashOf(models)[:12]
	}
	return s, true
}

func readNodes(o *pyjson.Object) map[string]*node {
	nodes := map[string]*node{}
	for id := range o.All() {
		n := o.Object(id)
		nodes[id] = &node{class: n.String("class_type"), inputs: n.Object("inputs")}
	}
	for _, n := range nodes {
		for name, v := range n.inputs.All() {
			if source, output, ok := linkOf(v); ok && nodes[source] != nil {
				n.links = append(n.links, link{name, source, output})
				nodes[source].readers++
			}
		}
		slices.SortFunc(n.links, func(a, b link) int { return strings.Compare(a.name, b.name) })
		n.waits = len(n.links)
	}
	return nodes
}

// linkOf reads an input that is the output of another node: ["4", 0].
func linkOf(v pyjson.Value) (source, output string, ok bool) {
	a, isArray := v.(pyjson.Array)
	if !isArray || len(a) != 2 {
		return "", "", false
	}
	id, isText := a[0].(pyjson.String)
	n, isNumber := a[1].(pyjson.Number)
	return string(id), string(n), isText && isNumber
}

// label gives each node the hash of its own class, models and choices, and returns the models of
// all nodes.
func label(nodes map[string]*node) (models []string) {
	for _, n := range nodes {
		parts := []string{}
		for name, v := range n.inputs.All() {
			text, ok := v.(pyjson.String)
			if !ok {
				continue
			}
			if job.NamesModel(string(text)) {
				models = append(models, string(text))
			} else if !choices[name] {
				continue
			}
			parts = append(parts, name+"="+string(text))
		}
		n.hash = hashOf(append(parts, "class="+n.class))
	}
	return models
}

// spread mixes into the hash of each node the hashes of the nodes that it reads, starting from the
// first nodes, and returns the nodes in that order. Nodes in a cycle, which no instance accepts,
// keep their own and are left out.
func spread(nodes map[string]*node) (order []*node) {
	readers := map[string][]*node{}
	var ready []*node
	ids := map[*node]string{}
	for id, n := range nodes {
		ids[n] = id
		for _, l := range n.links {
			readers[l.source] = append(readers[l.source], n)
		}
		if n.waits == 0 {
			ready = append(ready, n)
		}
	}
	for len(ready) > 0 {
		n := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		order = append(order, n)
		parts := []string{"class:" + n.hash}
		for _, l := range n.links {
			parts = append(parts, "link:"+l.name+"/"+l.output+"/"+nodes[l.source].hash)
		}
		n.hash = hashOf(parts)
		for _, reader := range readers[ids[n]] {
			if reader.waits--; reader.waits == 0 {
				ready = append(ready, reader)
			}
		}
	}
	return order
}

// hashOf returns a hash of texts that does not depend on their order.
func hashOf(parts []string) string {
	slices.Sort(parts)
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// factors are the inputs that scale the work, by what they mean.
var factors = map[string][]string{
	"batch":   {"batch_size"},
	"frames":  {"length", "frames", "num_frames", "video_frames", "frame_count", "max_frames"},
	"seconds": {"seconds"},
}

// maxWork bounds the work, so that products of a user's numbers stay finite.
const maxWork = 1e15

// work returns steps x pixels x batch x frames x seconds. Steps add up over the samplers, and over
// the runs of their loops; a loop without samplers has one for each time. Of the
// others only the largest counts, since several nodes often repeat one. Denoise is not a factor:
// ComfyUI runs all the steps that it was given whatever the denoise, except that it runs none at 0.
func work(nodes map[string]*node) float64 {
	var steps, pixels, scale float64 = 0, 0, 1
	largest := map[string]float64{}
	for _, n := range nodes {
		get := func(name string) float64 { return number(nodes, n.inputs, name) }
		steps += stepsOf(n, get) * max(n.times, 1)
		if !n.samples {
			steps += n.inside
		}
		pixels = max(pixels, get("width")*get("height"))
		if by := max(get("scale_by"), get("upscale_by")); by > 0 {
			scale = max(scale, min(by*by, 1e4))
		}
		for meaning, names := range factors {
			for _, name := range names {
				largest[meaning] = max(largest[meaning], get(name))
			}
		}
	}
	w := min(max(steps, 1)*max(pixels, 1)*scale, maxWork)
	for _, meaning := range []string{"batch", "frames", "seconds"} {
		if f := largest[meaning]; f > 0 {
			w = min(w*f, maxWork)
		}
	}
	return min(max(w, 1e-3), maxWork)
}

// stepsOf returns the steps of a node; an advanced sampler runs only part of them.
func stepsOf(n *node, get func(string) float64) float64 {
	if n.inputs.Has("denoise") && get("denoise") == 0 && isNumber(n.inputs, "denoise") {
		return 0
	}
	steps := get("steps")
	if n.inputs.Has("end_at_step") {
		steps = min(steps, get("end_at_step")) - get("start_at_step")
	}
	return max(steps, 0)
}

func isNumber(inputs *pyjson.Object, name string) bool {
	v, _ := inputs.Get(name)
	_, ok := v.(pyjson.Number)
	return ok
}

// number returns an input that is a number, in the node itself or in the node that it reads if that
// is a constant; 0 for others.
func number(nodes map[string]*node, inputs *pyjson.Object, name string) float64 {
	v, _ := inputs.Get(name)
	if source, _, ok := linkOf(v); ok && nodes[source] != nil {
		v, _ = nodes[source].inputs.Get("value")
	}
	n, ok := v.(pyjson.Number)
	if !ok {
		return 0
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil || math.IsNaN(f) || f < 0 {
		return 0
	}
	return min(f, 1e7)
}
