package simsd

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// maxBody bounds a request, in bytes.
const maxBody = 256 << 20

func (s *Server) routes() {
	s.mux = http.NewServeMux()
	for path, do := range map[string]func(r *http.Request, body *pyjson.Object) (pyjson.Value, *failure){
		"txt2img": s.txt2img, "img2img": s.img2img, "extra-single-image": s.extraSingle, "extra-batch-images": s.extraBatch,
		"png-info": s.pngInfo, "interrogate": s.interrogate, "options": s.setOptions,
	} {
		s.mux.HandleFunc("POST /sdapi/v1/"+path, func(w http.ResponseWriter, r *http.Request) {
			body, f := readBody(w, r)
			var v pyjson.Value
			if f == nil {
				v, f = do(r, body)
			}
			if f != nil {
				f.answer(w)
				return
			}
			answer(w, http.StatusOK, v)
		})
	}
	for path, get := range map[string]func() pyjson.Value{
		"options": s.getOptions, "sd-models": s.models, "loras": s.loras, "memory": s.memory,
		"samplers": func() pyjson.Value {
			return pyjson.Array{
				dict("name", pyjson.String("Euler a"), "aliases", pyjson.Strings([]string{"k_euler_a"}), "options", &pyjson.Object{}),
				dict("name", pyjson.String("DPM++ 2M"), "aliases", pyjson.Strings([]string{"k_dpmpp_2m"}), "options", &pyjson.Object{}),
			}
		},
		"schedulers": func() pyjson.Value {
			return pyjson.Array{dict("name", pyjson.String("karras"), "label", pyjson.String("Karras"), "aliases", pyjson.Null{}, "default_rho", pyjson.Float(7), "need_inner_model", pyjson.Bool(false))}
		},
		"upscalers": func() pyjson.Value {
			list := pyjson.Array{}
			for _, name := range []string{"None", "Lanczos", "Nearest"} {
				list = append(list, dict("name", pyjson.String(name), "model_name", pyjson.Null{}, "model_path", pyjson.Null{}, "model_url", pyjson.Null{}, "scale", pyjson.Float(4)))
			}
			return list
		},
		"latent-upscale-modes": func() pyjson.Value { return pyjson.Array{dict("name", pyjson.String("Latent"))} },
		"sd-modules":           func() pyjson.Value { return pyjson.Array{} }, // Forge's, whose list is a plain one
	} {
		s.get(path, get)
	}
	for path, what := range assets() {
		s.get(path, func() pyjson.Value { return pyjson.Clone(what) })
	}
	for path, set := range map[string]func(*state){
		"interrupt": func(st *state) { st.interrupted = true }, "unload-checkpoint": func(*state) {}, "reload-checkpoint": func(*state) {},
	} {
		s.set(path, set, &pyjson.Object{})
	}
	s.set("skip", func(st *state) { st.skipped = true }, pyjson.Null{})
	for _, what := range []string{"checkpoints", "vae", "loras", "embeddings"} {
		s.mux.HandleFunc("POST /sdapi/v1/refresh-"+what, s.refresh)
	}
	s.mux.HandleFunc("GET /controlnet/model_list", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, dict("model_list", pyjson.Strings([]string{"control_canny [1234]"})))
	})
	s.mux.HandleFunc("GET /sdapi/v1/progress", s.progress)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusNotFound, dict("detail", pyjson.String("Not Found")))
	})
}

// get adds a route that shows something.
func (s *Server) get(path string, show func() pyjson.Value) {
	s.mux.HandleFunc("GET /sdapi/v1/"+path, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, show()) })
}

// set adds a route that changes the state.
func (s *Server) set(path string, change func(*state), v pyjson.Value) {
	s.mux.HandleFunc("POST /sdapi/v1/"+path, func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		change(&s.state)
		s.mu.Unlock()
		answer(w, http.StatusOK, v)
	})
}

func answer(w http.ResponseWriter, status int, v pyjson.Value) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(pyjson.Marshal(v))
}

// failure is an exception of a route.
type failure struct {
	status               int
	kind, detail, errors string
	// fields are the members that FastAPI refuses, by its own error.
	fields pyjson.Array
}

func (f *failure) answer(w http.ResponseWriter) {
	if f.fields != nil {
		answer(w, f.status, dict("detail", f.fields))
		return
	}
	answer(w, f.status, dict("error", pyjson.String(f.kind), "detail", pyjson.String(f.detail), "body", pyjson.String(""), "errors", pyjson.String(f.errors)))
}

func httpException(status int, detail string) *failure {
	return &failure{status: status, kind: "HTTPException", detail: detail}
}

// invalid is FastAPI's refusal of a member.
func invalid(member, message, kind string) *failure {
	return &failure{status: http.StatusUnprocessableEntity, fields: pyjson.Array{
		dict("loc", pyjson.Strings([]string{"body", member}), "msg", pyjson.String(message), "type", pyjson.String(kind)),
	}}
}

func readBody(w http.ResponseWriter, r *http.Request) (*pyjson.Object, *failure) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	v, parse := pyjson.Parse(data)
	o, ok := v.(*pyjson.Object)
	if err != nil || parse != nil || !ok {
		return nil, invalid("body", "value is not a valid dict", "type_error.dict")
	}
	return o, nil
}

// refresh looks for new files once nothing is generated.
func (s *Server) refresh(w http.ResponseWriter, _ *http.Request) {
	s.queue.Lock()
	defer s.queue.Unlock()
	s.known.Store(s.added.Load())
	answer(w, http.StatusOK, pyjson.Null{})
}

func (s *Server) getOptions() pyjson.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pyjson.Clone(s.options)
}

func (s *Server) setOptions(_ *http.Request, body *pyjson.Object) (pyjson.Value, *failure) {
	if v, ok := body.Get("sd_model_checkpoint"); ok {
		name, _ := v.(pyjson.String)
		if s.find(string(name)) == "" {
			return nil, &failure{status: http.StatusInternalServerError, kind: "RuntimeError", errors: fmt.Sprintf("model '%s' not found", name)}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, v := range body.All() {
		if !s.options.Has(key) {
			return nil, &failure{status: http.StatusInternalServerError, kind: "KeyError", errors: "'" + key + "'"}
		}
		s.options.Set(key, v)
	}
	return pyjson.Null{}, nil
}

func (s *Server) models() pyjson.Value {
	list := pyjson.Array{}
	for _, file := range *s.known.Load() {
		list = append(list, dict("title", pyjson.String(title(file)), "model_name", pyjson.String(strings.NewReplacer("/", "_").Replace(strings.TrimSuffix(file, ".safetensors"))),
			"hash", pyjson.String(hash(file)), "sha256", pyjson.Null{}, "filename", pyjson.String("/models/Stable-diffusion/"+file), "config", pyjson.Null{}))
	}
	return list
}

func (s *Server) loras() pyjson.Value {
	list := pyjson.Array{}
	for _, name := range s.c.Loras {
		list = append(list, dict("name", pyjson.String(name), "alias", pyjson.String(name), "path", pyjson.String("/models/Lora/"+name+".safetensors"), "metadata", &pyjson.Object{}))
	}
	return list
}

func (s *Server) memory() pyjson.Value {
	return dict("ram", dict("free", pyjson.Float(16e9), "used", pyjson.Float(16e9), "total", pyjson.Float(32e9)),
		"cuda", dict("system", dict("free", pyjson.Int(s.c.VRAM/2), "used", pyjson.Int(s.c.VRAM/2), "total", pyjson.Int(s.c.VRAM))))
}

func (s *Server) progress(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	st := s.state
	s.mu.Unlock()
	share, eta, current := 0.0, 0.0, pyjson.Value(pyjson.Null{})
	began := ""
	if !st.began.IsZero() {
		began = st.began.Format("20060102150405")
	}
	if st.jobs != 0 {
		share = 0.01 + float64(st.number)/float64(st.jobs)
		if st.steps > 0 {
			share += float64(st.step) / float64(st.steps) / float64(st.jobs)
		}
		eta, share = time.Since(st.began).Seconds()/share-time.Since(st.began).Seconds(), min(share, 1)
		if st.step > 0 && r.URL.Query().Get("skip_current_image") != "true" {
			c := colorOf(st.step)
			current = pyjson.String(base64.StdEncoding.EncodeToString(paint(64, 64, c, c, "")))
		}
	}
	answer(w, http.StatusOK, dict("progress", pyjson.Float(share), "eta_relative", pyjson.Float(eta), "state", dict(
		"skipped", pyjson.Bool(st.skipped), "interrupted", pyjson.Bool(st.interrupted), "stopping_generation", pyjson.Bool(st.stopped),
		"job", pyjson.String(st.job), "job_count", pyjson.Int(int64(st.jobs)), "job_timestamp", pyjson.String(began), "job_no", pyjson.Int(int64(st.number)),
		"sampling_step", pyjson.Int(int64(st.step)), "sampling_steps", pyjson.Int(int64(st.steps)),
	), "current_image", current, "textinfo", pyjson.Null{}))
}
