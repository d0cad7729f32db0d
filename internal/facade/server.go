package facade

import (
	"context"
	"net/http"
	"sync"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// maxQueue bounds the prompts that wait: a hub sends one, and one ahead.
	maxQueue = 16
	// maxHistory bounds the prompts that have ended and are remembered.
	maxHistory = 100
	// maxKept bounds the outputs of all of them but the newest, in bytes. A hub fetches
	// them at once.
	maxKept = 2 << 30
	// maxBody bounds a request body that is read into memory, in bytes.
	maxBody = 64 << 20
)

// Server is the ComfyUI that hubs see. It is safe for concurrent use.
//
// Many methods: one for each route, all over the same queue and sockets.
type Server struct {
	backend Backend
	files   *files
	mux     *http.ServeMux
	ctx     context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup
	wake    chan struct{}

	// inside serves connections from within the process.
	inside inside

	// opening is held for reading while a socket opens.
	opening sync.RWMutex

	mu sync.Mutex
	// closed means that nothing is sent or kept any more: a prompt that is cut short has
	// not ended.
	closed bool
	// foreign means that the backend works for somebody else.
	foreign bool
	number  int64
	pending []*Prompt
	running *running
	history []*ended
	sockets map[string]*socket
}

// running is the prompt that runs.
type running struct {
	*Prompt
	cancel context.CancelFunc
	// node is the last one that the backend has reported on.
	node string
	// progress is by node.
	progress *pyjson.Object
	messages pyjson.Array
}

// New returns a server in front of a backend, with its files in a folder of its own.
func New(backend Backend, dir string) (*Server, error) {
	files, err := newFiles(dir)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{backend: backend, files: files, ctx: ctx, stop: stop, wake: make(chan struct{}, 1), sockets: map[string]*socket{}}
	s.routes()
	s.work.Go(s.run)
	return s, nil
}

// Close ends all connections and whatever runs, and removes the files. To hubs it is as if
// the process of a ComfyUI had been killed: nobody is told how its prompts end.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, one := range s.sockets {
		_ = one.conn.CloseNow()
	}
	s.mu.Unlock()
	s.inside.close()
	s.stop()
	s.work.Wait()
	s.files.close()
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) routes() {
	s.mux = http.NewServeMux()
	for pattern, serve := range map[string]http.HandlerFunc{
		"GET /ws":                  s.getSocket,
		"GET /system_stats":        s.getStats,
		"GET /object_info":         s.getObjectInfo,
		"GET /object_info/{class}": s.getClass,
		"GET /features":            s.getFeatures,
		"GET /prompt":              s.getRemaining,
		"POST /prompt":             s.postPrompt,
		"GET /queue":               s.getQueue,
		"POST /queue":              s.postQueue,
		"POST /interrupt":          s.postInterrupt,
		"POST /free":               func(http.ResponseWriter, *http.Request) {},
		"GET /history":             s.getHistory,
		"GET /history/{id}":        s.getHistoryOf,
		"POST /history":            s.postHistory,
		"GET /view":                s.getView,
		"POST /upload/image":       s.postUpload,
	} {
		s.mux.HandleFunc(pattern, serve)
	}
	if rest, ok := s.backend.(http.Handler); ok {
		s.mux.Handle("/", rest)
	}
}

func answer(w http.ResponseWriter, status int, v pyjson.Value) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(pyjson.Marshal(v))
}

// dict makes an object of keys and values in turn.
func dict(pairs ...any) *pyjson.Object {
	o := &pyjson.Object{}
	for i := 0; i < len(pairs); i += 2 {
		key, _ := pairs[i].(string)
		v, _ := pairs[i+1].(pyjson.Value)
		o.Set(key, v)
	}
	return o
}

func (s *Server) getStats(w http.ResponseWriter, _ *http.Request) {
	about := s.backend.About()
	devices := pyjson.Array{}
	if about.Device != "" {
		devices = append(devices, dict(
			"name", pyjson.String(about.Device), "type", pyjson.String("cuda"), "index", pyjson.Int(0),
			"vram_total", pyjson.Int(about.VRAMTotal), "vram_free", pyjson.Int(about.VRAMFree),
			"torch_vram_total", pyjson.Int(0), "torch_vram_free", pyjson.Int(0)))
	}
	answer(w, http.StatusOK, dict(
		"system", dict("os", pyjson.String("posix"), "comfyui_version", pyjson.String(about.Version), "argv", pyjson.Array{}),
		"devices", devices))
}

func (s *Server) getObjectInfo(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write(s.backend.ObjectInfo())
}

func (s *Server) getClass(w http.ResponseWriter, r *http.Request) {
	class := r.PathValue("class")
	found := &pyjson.Object{}
	if all, err := pyjson.Parse(s.backend.ObjectInfo()); err == nil {
		if all, ok := all.(*pyjson.Object); ok {
			if info, ok := all.Get(class); ok {
				found.Set(class, info)
			}
		}
	}
	answer(w, http.StatusOK, found)
}

func (s *Server) getFeatures(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, dict("supports_preview_metadata", pyjson.Bool(false), "max_upload_size", pyjson.Int(maxUpload)))
}
