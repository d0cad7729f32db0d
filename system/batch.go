package system

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"strings"
)

const (
	// batchMark ends the ids of prompts that make several pictures, which servers may make together.
	batchMark = "-batch"
	// batchSize is how many that are unless the world says otherwise.
	batchSize = 4
)

// batchGraph is a prompt for a batch that servers can make together: its pictures are large enough for
// their noise to be what it is in the whole batch. One server takes 0.8 s for each
// picture.
func batchGraph(seed, pictures int) string {
	return fmt.Sprintf(`{"1": {"class_type": "KSampler", "inputs": {"seed": %d, "steps": 6, "cfg": 8.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1,
			"model": ["4", 0], "positive": ["6", 0], "negative": ["7", 0], "latent_image": ["5", 0]}},
		"2": {"class_type": "VAEDecode", "inputs": {"samples": ["1", 0], "vae": ["4", 2]}},
		"3": {"class_type": "SaveImage", "inputs": {"filename_prefix": "ComfyUI", "images": ["2", 0]}},
		"4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}},
		"5": {"class_type": "EmptyLatentImage", "inputs": {"width": 32, "height": 32, "batch_size": %d}},
		"6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a tree", "clip": ["4", 1]}},
		"7": {"class_type": "CLIPTextEncode", "inputs": {"text": "", "clip": ["4", 1]}}}`, seed, pictures)
}

// branchesGraph is a prompt with an output for each picture, of which servers can make some each. The
// pictures differ in their widths, and one server takes 0.8 s for each.
func branchesGraph(seed, pictures int) string {
	var text strings.Builder
	text.WriteString(`{"4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}},
		"6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a tree", "clip": ["4", 1]}}`)
	for n := range pictures {
		fmt.Fprintf(&text, `, "1-%[1]d": {"class_type": "KSampler", "inputs": {"seed": %[2]d, "steps": 6, "cfg": 8.0, "sampler_name": "euler_ancestral", "scheduler": "normal",
			"denoise": 1, "model": ["4", 0], "positive": ["6", 0], "negative": ["6", 0], "latent_image": ["5-%[1]d", 0]}},
		"2-%[1]d": {"class_type": "VAEDecode", "inputs": {"samples": ["1-%[1]d", 0], "vae": ["4", 2]}},
		"3-%[1]d": {"class_type": "SaveImage", "inputs": {"filename_prefix": "ComfyUI", "images": ["2-%[1]d", 0]}},
		"5-%[1]d": {"class_type": "EmptyLatentImage", "inputs": {"width": %[3]d, "height": 16, "batch_size": 1}}`, n, seed+n, branchWidth(n))
	}
	return text.String() + "}"
}

// branchWidth is the width of a picture that has an output of its own.
func branchWidth(n int) int { return 16 + 8*n }

// hasWidth checks that a picture is the nth output of a prompt with this seed.
func hasWidth(picture []byte, seed, n int) error {
	m, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return err
	}
	if got := m.Bounds().Dx(); got != branchWidth(n) {
		return fmt.Errorf("it is of output %d, and its width is %d", n, got)
	}
	graph, err := graphIn(picture)
	if err != nil {
		return err
	}
	if got := graph[fmt.Sprintf("1-%d", n)].Inputs.Seed; got != seed+n {
		return fmt.Errorf("its seed is %d, not %d", got, seed+n)
	}
	return nil
}

// savers are the nodes that save its pictures.
func (p *Prompt) savers() (nodes []string) {
	if !p.Apart {
		return []string{"3"}
	}
	for n := range p.Pictures {
		nodes = append(nodes, fmt.Sprintf("3-%d", n))
	}
	return nodes
}

func (p *Prompt) graph() string {
	if p.Apart {
		return branchesGraph(p.Color, p.Pictures)
	}
	if p.Pictures > 1 {
		return batchGraph(p.Color, p.Pictures)
	}
	return Graph(p.Seconds, p.Color)
}

// shows checks that a picture is the prompt's nth.
func (p *Prompt) shows(picture []byte, n int) error {
	if p.Apart {
		return hasWidth(picture, p.Color, n)
	}
	if p.Pictures > 1 {
		inPart, err := hasPlace(picture, p.Color, n)
		p.InParts = p.InParts || inPart
		return err
	}
	return hasColor(picture, p.Color)
}

// hasPlace checks by the graph in a picture that it comes from a batch with this seed, and from a
// part that has its nth picture, if it comes from a part.
func hasPlace(picture []byte, seed, n int) (inPart bool, err error) {
	graph, err := graphIn(picture)
	if err != nil {
		return false, err
	}
	if graph["1"].Inputs.Seed != seed {
		return false, fmt.Errorf("its seed is %d, not %d", graph["1"].Inputs.Seed, seed)
	}
	for id, node := range graph {
		if !strings.HasPrefix(id, "comfyhub_part") {
			continue
		}
		if inPart = true; n < node.Inputs.From || n >= node.Inputs.From+node.Inputs.Length {
			return true, fmt.Errorf("it is number %d, and comes from the %d pictures from %d on", n, node.Inputs.Length, node.Inputs.From)
		}
	}
	return inPart, nil
}

// shownNode is a node of the graph in a picture.
type shownNode struct {
	Class  string `json:"class_type"`
	Inputs struct {
		Seed   int
		From   int `json:"batch_index"`
		Length int
	}
}

// graphIn is the graph that a server has written into a picture.
func graphIn(picture []byte) (graph map[string]shownNode, err error) {
	_, text, found := bytes.Cut(picture, []byte("prompt\x00"))
	if !found {
		return nil, fmt.Errorf("it has no graph: %.100q", picture)
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&graph); err != nil {
		return nil, fmt.Errorf("its graph: %w", err)
	}
	return graph, nil
}

// isBroken reports whether something is no picture, nobody's.
func isBroken(picture []byte) bool {
	_, err := png.Decode(bytes.NewReader(picture))
	return err != nil
}

func hasColor(picture []byte, color int) error {
	m, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return err
	}
	r, g, b, _ := m.At(8, 8).RGBA()
	if got := int(r>>8)<<16 | int(g>>8)<<8 | int(b>>8); got != color {
		return fmt.Errorf("its colour is %06x, not %06x", got, color)
	}
	return nil
}
