package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
)

// guest is one client of a soak. All of it belongs to one goroutine.
type guest struct {
	url  string
	name string
	// id is its client_id, a new one at each visit: a client that leaves right
	// after the last message and comes back under the same id may be sent a
	// prompt again. reconnect tests that.
	id     string
	number int
	rand   *rand.Rand
	tally  *tally
	posted int
	// prompts are those that it has posted, by id.
	prompts map[string]*prompt
}

// prompt is one prompt of a guest: what it asks for and what came back.
type prompt struct {
	id string
	// colour is the guest's number and a running one: no other prompt's
	// pictures have it.
	colour   int
	seconds  float64
	steps    int // an interrupt is noticed after each
	fail     string
	input    string // an uploaded picture, instead of an empty one
	bySocket bool   // the result comes over the socket only
	want     string // the type of the message that ends it

	working bool // the node that takes time has begun
	ends    int  // complete sequences seen
}

func (g *guest) prompt() *prompt {
	g.posted++
	return &prompt{
		id: uuid.NewString(), colour: g.number<<16 | g.posted&0xFFFF,
		seconds: 0.2 + g.rand.Float64()/2, steps: 3, fail: "none", want: "execution_success",
	}
}

// endless makes it run until somebody stops it.
func (p *prompt) endless() { p.seconds, p.steps = 3600, 10_000 }

// ended reports whether all prompts were seen to end.
func ended(prompts ...*prompt) func() bool {
	return func() bool {
		for _, p := range prompts {
			if p.ends == 0 {
				return false
			}
		}
		return true
	}
}

// The nodes of every graph.
const (
	sourceNode = "1"
	workNode   = "2"
	saveNode   = "3"
)

func (p *prompt) graph() string {
	source := fmt.Sprintf(`{"class_type": "EmptyImage", "inputs": {"width": 32, "height": 32, "batch_size": 1, "color": %d}}`, p.colour)
	if p.input != "" {
		source = fmt.Sprintf(`{"class_type": "LoadImage", "inputs": {"image": %q}}`, p.input)
	}
	save := `{"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "soak"}}`
	if p.bySocket {
		save = `{"class_type": "SaveImageWebsocket", "inputs": {"images": ["2", 0]}}`
	}
	return fmt.Sprintf(`{%q: %s, %q: {"class_type": "SimulatedWork",
		"inputs": {"image": [%q, 0], "seconds": %g, "steps": %d, "fail": %q, "nonce": %d}}, %q: %s}`,
		sourceNode, source, workNode, sourceNode, p.seconds, p.steps, p.fail, p.colour, saveNode, save)
}

// post sends a prompt under an id of its own, so that the id is known before
// the prompt's first message can arrive.
func (g *guest) post(ctx context.Context, p *prompt, client string) error {
	g.prompts[p.id] = p
	g.tally.prompts.Add(1)
	body := fmt.Sprintf(`{"prompt": %s, "prompt_id": %q, "client_id": %q}`, p.graph(), p.id, client)
	if client == "" {
		body = fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, p.graph(), p.id)
	}
	var accepted struct {
		ID     string          `json:"prompt_id"`
		Errors json.RawMessage `json:"node_errors"`
	}
	code, answer, err := g.do(ctx, http.MethodPost, "/prompt", "application/json", []byte(body))
	switch {
	case err != nil:
		return err
	case code != http.StatusOK:
		return fmt.Errorf("POST /prompt: %d %s", code, answer)
	case json.Unmarshal(answer, &accepted) != nil || accepted.ID != p.id || string(accepted.Errors) != "{}":
		return fmt.Errorf("POST /prompt of %s: %s", p.id, answer)
	}
	return nil
}

// send is a POST whose answer only confirms that it arrived.
func (g *guest) send(ctx context.Context, path, body string) error {
	code, answer, err := g.do(ctx, http.MethodPost, path, "application/json", []byte(body))
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("POST %s: %d %s", path, code, answer)
	}
	return err
}

// get reads JSON. The answer's status is not an error if it is below 500.
func (g *guest) get(ctx context.Context, path string, into any) (code int, err error) {
	code, answer, err := g.do(ctx, http.MethodGet, path, "", nil)
	if err == nil && (code >= 500 || code == http.StatusOK && json.Unmarshal(answer, into) != nil) {
		err = fmt.Errorf("GET %s: %d %s", path, code, answer)
	}
	return code, err
}

func (g *guest) do(ctx context.Context, method, path, kind string, body []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, g.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	req.Header.Set("User-Agent", g.name)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// wait polls as clients without a socket do.
func (g *guest) wait(ctx context.Context, what string, done func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-limit:
			return fmt.Errorf("in vain: %s", what)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type savedImage struct{ Filename, Subfolder, Type string }

type historyEntry struct {
	Outputs map[string]struct{ Images []savedImage }
	Status  struct {
		Text     string `json:"status_str"`
		Messages [][]json.RawMessage
	}
}

func (g *guest) inHistory(ctx context.Context, p *prompt) (code int, known bool, err error) {
	var all map[string]historyEntry
	code, err = g.get(ctx, "/history/"+p.id, &all)
	_, known = all[p.id]
	return code, known, err
}

// verify waits for the history entries of prompts and looks at their pictures.
// A client that has seen an end on a socket finds the entry at once.
func (g *guest) verify(ctx context.Context, prompts ...*prompt) error {
	for _, p := range prompts {
		var e historyEntry
		err := g.wait(ctx, "history of "+p.id, func() (bool, error) {
			var all map[string]historyEntry
			_, err := g.get(ctx, "/history/"+p.id, &all)
			var known bool
			if e, known = all[p.id]; !known && err == nil && p.ends > 0 {
				err = fmt.Errorf("%s has ended and is not in the history", p.id)
			}
			return known, err
		})
		if err != nil {
			return err
		}
		if err := g.verifyEntry(ctx, p, e); err != nil {
			return fmt.Errorf("%s: %w", p.id, err)
		}
	}
	return nil
}

func (g *guest) verifyEntry(ctx context.Context, p *prompt, e historyEntry) error {
	if last := e.Status.Messages[len(e.Status.Messages)-1][0]; string(last) != `"`+p.want+`"` {
		return fmt.Errorf("want %s, the history says %s", p.want, last)
	}
	images := e.Outputs[saveNode].Images
	if p.want != "execution_success" {
		return nil
	}
	if len(images) != 1 {
		return fmt.Errorf("%d pictures", len(images))
	}
	return g.verifyImage(ctx, p, images[0])
}

// verifyImage checks by its colour that a file is the prompt's own.
func (g *guest) verifyImage(ctx context.Context, p *prompt, i savedImage) error {
	query := url.Values{"filename": {i.Filename}, "subfolder": {i.Subfolder}, "type": {i.Type}}
	code, data, err := g.do(ctx, http.MethodGet, "/view?"+query.Encode(), "", nil)
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("view %s: %d %w", i.Filename, code, err)
	}
	if err := p.owns(data); err != nil {
		return fmt.Errorf("%s: %w", i.Filename, err)
	}
	g.tally.pictures.Add(1)
	return nil
}

// owns reports whether a PNG has the prompt's colour.
func (p *prompt) owns(data []byte) error {
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return err
	}
	r, gr, b, _ := picture.At(7, 7).RGBA()
	if got := int(r>>8)<<16 | int(gr>>8)<<8 | int(b>>8); got != p.colour {
		return fmt.Errorf("a picture of guest %d, prompt %d, where prompt %d was due", got>>16, got&0xFFFF, p.colour&0xFFFF)
	}
	return nil
}

// uploadPicture uploads a picture of one colour and returns the name it got.
func (g *guest) uploadPicture(ctx context.Context, name string, colour int) (string, error) {
	picture := image.NewRGBA(image.Rect(0, 0, 32, 32))
	for n := range 32 * 32 {
		picture.SetRGBA(n%32, n/32, color.RGBA{uint8(colour >> 16), uint8(colour >> 8), uint8(colour), 255})
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("image", name)
	if err := errors.Join(err, png.Encode(part, picture), form.Close()); err != nil {
		return "", err
	}
	code, answer, err := g.do(ctx, http.MethodPost, "/upload/image", form.FormDataContentType(), body.Bytes())
	if err != nil || code != http.StatusOK {
		return "", fmt.Errorf("upload: %d %s %w", code, answer, err)
	}
	var got struct{ Name, Subfolder string }
	if err := json.Unmarshal(answer, &got); err != nil || !strings.HasPrefix(got.Name, "photo") {
		return "", fmt.Errorf("upload: %s", answer)
	}
	return got.Name, nil
}
