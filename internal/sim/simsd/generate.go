package simsd

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	_ "image/jpeg" // what clients send
	_ "image/png"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func whole(o *pyjson.Object, key string, otherwise int) int {
	v, _ := o.Get(key)
	n, ok := v.(pyjson.Number)
	if i, is := n.Int64(); ok && is {
		return int(i)
	}
	return otherwise
}

// decode reads a picture in base64.
func decode(text string) (image.Image, []byte, *failure) {
	if strings.HasPrefix(text, "data:image/") {
		_, text, _ = strings.Cut(text, ",")
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		var picture image.Image
		if picture, _, err = image.Decode(bytes.NewReader(data)); err == nil {
			return picture, data, nil
		}
	}
	return nil, nil, httpException(http.StatusInternalServerError, "Invalid encoded image")
}

// corner is the colour of a picture's first pixel.
func corner(p image.Image) color.Color { return p.At(p.Bounds().Min.X, p.Bounds().Min.Y) }

func (s *Server) txt2img(_ *http.Request, body *pyjson.Object) (pyjson.Value, *failure) {
	return s.generate("txt2img", body, nil)
}

func (s *Server) img2img(_ *http.Request, body *pyjson.Object) (pyjson.Value, *failure) {
	pictures := body.Array("init_images")
	if pictures == nil {
		return nil, httpException(http.StatusNotFound, "Init image not found")
	}
	var from color.Color
	for _, v := range pictures {
		text, _ := v.(pyjson.String)
		picture, _, f := decode(string(text))
		if f != nil {
			return nil, f
		}
		if from == nil {
			from = corner(picture)
		}
	}
	if mask := body.String("mask"); mask != "" {
		if _, _, f := decode(mask); f != nil {
			return nil, f
		}
	}
	return s.generate("img2img", body, from)
}

// begin takes the lock and begins a job; end must be called.
func (s *Server) begin(path string, body *pyjson.Object, jobs, steps int) (checkpoint string, end func(), f *failure) {
	s.queue.Lock()
	overrides := body.Object("override_settings")
	loads := false
	s.mu.Lock()
	defer func() {
		s.mu.Unlock()
		if loads {
			time.Sleep(s.c.LoadTime)
		}
	}()
	s.state = state{job: "scripts_" + path, began: time.Now(), jobs: jobs, steps: steps}
	before := s.options
	s.options = &pyjson.Object{}
	for key, v := range before.All() {
		s.options.Set(key, v)
	}
	for key, v := range overrides.All() {
		if key == "sd_model_checkpoint" {
			name, _ := v.(pyjson.String)
			title := s.find(string(name))
			if title == "" {
				continue // an unknown one is left out
			}
			v = pyjson.String(title)
		} else if !before.Has(key) {
			f = &failure{status: http.StatusInternalServerError, kind: "KeyError", errors: "'" + key + "'"}
		}
		s.options.Set(key, v)
	}
	checkpoint = s.options.String("sd_model_checkpoint")
	loads = s.loaded != checkpoint
	s.loaded = checkpoint
	restore, _ := body.Get("override_settings_restore_afterwards")
	s.done = append(s.done[max(0, len(s.done)-maxDone+1):], Done{path, checkpoint, body})
	if s.broken != "" {
		f = &failure{status: http.StatusInternalServerError, kind: s.broken, errors: "CUDA out of memory. Tried to allocate 9.00 GiB"}
	}
	return checkpoint, func() {
		s.mu.Lock()
		s.state.jobs, s.state.job = 0, ""
		if restore != pyjson.Bool(false) { // what is loaded stays so
			s.options = before
		}
		s.mu.Unlock()
		s.queue.Unlock()
	}, f
}

// sample does the steps of a picture. It does fewer if it was interrupted or skipped; the
// picture is what it is by then. It is false if the process is dead.
func (s *Server) sample(life context.Context, number, steps int) bool {
	for step := range steps {
		if s.c.StepTime > 0 {
			time.Sleep(s.c.StepTime)
		}
		s.mu.Lock()
		if life.Err() != nil {
			s.mu.Unlock()
			return false
		}
		s.state.number, s.state.step = number, step+1
		interrupted, skipped := s.state.interrupted, s.state.skipped
		s.state.skipped = false
		s.mu.Unlock()
		if interrupted || skipped {
			break
		}
	}
	return true
}

// stops reports whether no further picture is to be begun.
func (s *Server) stops() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.interrupted
}

// samplers are those that it knows.
var samplers = []string{"", "Euler", "Euler a", "DPM++ 2M"}

// generate makes pictures: each has the colour of its seed, and to the right that of the
// picture it was made from, if there is one.
func (s *Server) generate(path string, body *pyjson.Object, from color.Color) (pyjson.Value, *failure) {
	if v, ok := body.Get("steps"); ok {
		if _, is := v.(pyjson.Number); !is {
			return nil, invalid("steps", "value is not a valid integer", "type_error.integer")
		}
	}
	if sampler := body.String("sampler_name"); !slices.Contains(samplers, sampler) {
		return nil, httpException(http.StatusNotFound, "Sampler not found")
	}
	steps, count, batch := whole(body, "steps", 50), max(whole(body, "n_iter", 1), 1), max(whole(body, "batch_size", 1), 1)
	width, height := min(max(whole(body, "width", 512), 8), 4096), min(max(whole(body, "height", 512), 8), 4096)
	checkpoint, end, f := s.begin(path, body, count, steps)
	defer end()
	if f != nil {
		return nil, f
	}
	s.mu.Lock()
	life := s.life
	s.mu.Unlock()
	seed := whole(body, "seed", -1)
	if seed < 0 {
		seed = rand.IntN(1 << 32)
	}
	images, seeds, texts := pyjson.Array{}, pyjson.Array{}, pyjson.Array{}
	for n := range count {
		if s.stops() || !s.sample(life, n, steps) {
			break
		}
		for range batch {
			one := seed + len(images)
			text := fmt.Sprintf("%s\nSteps: %d, Sampler: Euler, CFG scale: 7, Seed: %d, Size: %dx%d, Model hash: %s, Model: %s",
				body.String("prompt"), steps, one, width, height, hash(checkpoint), stem(checkpoint))
			left, right := colorOf(one), from
			if right == nil {
				right = left
			}
			images = append(images, pyjson.String(base64.StdEncoding.EncodeToString(paint(width, height, left, right, text))))
			seeds, texts = append(seeds, pyjson.Int(int64(one))), append(texts, pyjson.String(text))
		}
	}
	if life.Err() != nil {
		panic(http.ErrAbortHandler) // the dead do not answer
	}
	parameters := dict("prompt", pyjson.String(""), "negative_prompt", pyjson.String(""), "seed", pyjson.Int(-1), "batch_size", pyjson.Int(1),
		"n_iter", pyjson.Int(1), "steps", pyjson.Int(50), "width", pyjson.Int(512), "height", pyjson.Int(512))
	for key, v := range body.All() {
		parameters.Set(key, v)
	}
	if include, _ := body.Get("include_init_images"); path == "img2img" && include != pyjson.Bool(true) {
		parameters.Set("init_images", pyjson.Null{})
		parameters.Set("mask", pyjson.Null{})
	}
	if send, ok := body.Get("send_images"); ok && send == pyjson.Bool(false) {
		images = pyjson.Array{}
	}
	info := dict("prompt", pyjson.String(body.String("prompt")), "seed", pyjson.Int(int64(seed)), "all_seeds", seeds, "width", pyjson.Int(int64(width)),
		"height", pyjson.Int(int64(height)), "steps", pyjson.Int(int64(steps)), "sd_model_name", pyjson.String(stem(checkpoint)), "sd_model_hash", pyjson.String(hash(checkpoint)),
		"infotexts", texts)
	return dict("images", images, "parameters", parameters, "info", pyjson.String(pyjson.Marshal(info))), nil
}

// enlarged is what becomes of a picture in the tab Extras.
func enlarged(text string) (pyjson.String, *failure) {
	picture, _, f := decode(text)
	if f != nil {
		return "", f
	}
	size, c := picture.Bounds().Size(), corner(picture)
	return pyjson.String(base64.StdEncoding.EncodeToString(paint(min(size.X*2, 4096), min(size.Y*2, 4096), c, c, ""))), nil
}

func (s *Server) extraSingle(_ *http.Request, body *pyjson.Object) (pyjson.Value, *failure) {
	picture, f := enlarged(body.String("image"))
	if f != nil {
		return nil, f
	}
	_, end, f := s.begin("extras", body, 1, 1)
	defer end()
	if f != nil {
		return nil, f
	}
	return dict("html_info", pyjson.String("<p>done</p>"), "image", picture), nil
}

func (s *Server) extraBatch(_ *http.Request, body *pyjson.Object) (pyjson.Value, *failure) {
	if !body.Has("imageList") {
		return nil, invalid("imageList", "field required", "value_error.missing")
	}
	pictures := pyjson.Array{}
	for _, v := range body.Array("imageList") {
		one, _ := v.(*pyjson.Object)
		picture, f := enlarged(one.String("data"))
		if f != nil {
			return nil, f
		}
		pictures = append(pictures, picture)
	}
	_, end, f := s.begin("extras", body, 1, 1)
	defer end()
	if f != nil {
		return nil, f
	}
	return dict("html_info", pyjson.String("<p>done</p>"), "images", pictures), nil
}

func (s *Server) pngInfo(_ *http.Request, body *pyjson.Object) (pyjson.Value, *failure) {
	if !body.Has("image") {
		return nil, invalid("image", "field required", "value_error.missing")
	}
	_, data, f := decode(strings.TrimSpace(body.String("image")))
	if f != nil {
		return nil, f
	}
	text := parametersOf(data)
	return dict("info", pyjson.String(text), "items", dict("parameters", pyjson.String(text)), "parameters", &pyjson.Object{}), nil
}

func (s *Server) interrogate(_ *http.Request, body *pyjson.Object) (pyjson.Value, *failure) {
	if _, _, f := decode(body.String("image")); f != nil {
		return nil, f
	}
	if model := body.String("model"); model != "" && model != "clip" && model != "deepdanbooru" {
		return nil, httpException(http.StatusNotFound, "Model not found")
	}
	s.queue.Lock()
	defer s.queue.Unlock()
	return dict("caption", pyjson.String("a painting of a square")), nil
}
