package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
)

// size is the width and the height of each picture, in pixels.
const size = 48

// The nodes of every graph.
const (
	sourceNode = "1"
	workNode   = "2"
	saveNode   = "3"
)

// prompt is one prompt of a client: what it asks for, and what became of it. A
// client's goroutine owns it until the client has ended.
type prompt struct {
	id     string
	client string // the client id, empty without a socket
	// colour is the colour of each pixel. No other prompt has it.
	colour   int
	seconds  float64
	bySocket bool // the picture comes over the socket only

	posted    time.Time
	accepted  bool // the POST was answered with 200
	cancelled bool // a cancel was sent: it may end in any way, or vanish
	ends      int  // ends seen on sockets, at most one for each socket
}

func newPrompt(colour int, random *rand.Rand) *prompt {
	return &prompt{id: uuid.NewString(), colour: colour, seconds: 0.1 + 1.5*random.Float64()}
}

// body is the body of POST /prompt.
func (p *prompt) body() []byte {
	save := map[string]any{"class_type": "SaveImage", "inputs": map[string]any{"images": []any{workNode, 0}, "filename_prefix": "chaos"}}
	if p.bySocket {
		save = map[string]any{"class_type": "SaveImageWebsocket", "inputs": map[string]any{"images": []any{workNode, 0}}}
	}
	body := map[string]any{"prompt_id": p.id, "prompt": map[string]any{
		sourceNode: map[string]any{"class_type": "EmptyImage", "inputs": map[string]any{"width": size, "height": size, "batch_size": 1, "color": p.colour}},
		workNode: map[string]any{"class_type": "SimulatedWork", "inputs": map[string]any{
			"image": []any{sourceNode, 0}, "seconds": p.seconds, "steps": 4, "nonce": p.colour,
		}},
		saveNode: save,
	}}
	if p.client != "" {
		body["client_id"] = p.client
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return encoded
}

// check looks at every pixel of a picture.
func (p *prompt) check(data []byte) error {
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return err
	}
	if b := picture.Bounds(); b.Dx() != size || b.Dy() != size {
		return fmt.Errorf("%d x %d pixels", b.Dx(), b.Dy())
	}
	for n := range size * size {
		r, g, b, _ := picture.At(n%size, n/size).RGBA()
		if got := int(r>>8)<<16 | int(g>>8)<<8 | int(b>>8); got != p.colour {
			return fmt.Errorf("the colour of prompt %d in a picture of prompt %d", got, p.colour)
		}
	}
	return nil
}
