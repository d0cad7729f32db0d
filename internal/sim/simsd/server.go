package simsd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Config describes a simulated server.
type Config struct {
	// Models are the files of its checkpoints, Loras the names of its LoRAs. Default: one
	// checkpoint, no LoRA.
	Models, Loras []string
	// StepTime is the duration of a sampling step, LoadTime that of loading a checkpoint.
	// Default: none.
	StepTime, LoadTime time.Duration
	// VRAM is the memory of its GPU in bytes. Default: 24 GiB.
	VRAM int64
	// Logger gets a line at the start. Default: none.
	Logger *slog.Logger
}

// Server is a simulated server. It is safe for concurrent use.
//
// Many methods: one for each route, all over the same state.
type Server struct {
	c   Config
	mux *http.ServeMux
	// queue is the lock under which it generates.
	queue sync.Mutex
	// known are the files of the checkpoints that it knows, added those that have come since
	// it looked.
	known, added atomic.Pointer[[]string]

	mu sync.Mutex
	// life ends with the process.
	life    context.Context
	state   state
	options *pyjson.Object
	// loaded is the title of the checkpoint in memory.
	loaded string
	done   []Done
	broken string
}

// maxDone bounds the requests that are remembered.
const maxDone = 1000

// Done is a request that the server has done.
type Done struct {
	// Path is the end of its path, Checkpoint what was loaded then.
	Path, Checkpoint string
	Payload          *pyjson.Object
}

// state is A1111's shared.state.
type state struct {
	job                           string
	began                         time.Time
	jobs, number, steps, step     int
	interrupted, skipped, stopped bool
}

// New returns a simulated server.
func New(c Config) *Server {
	if len(c.Models) == 0 {
		c.Models = []string{"v1-5-pruned-emaonly.safetensors"}
	}
	c.VRAM = cmp.Or(c.VRAM, 24<<30)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	s := &Server{c: c, life: context.Background(), options: dict(
		"sd_model_checkpoint", pyjson.String(title(c.Models[0])), "samples_format", pyjson.String("png"), "CLIP_stop_at_last_layers", pyjson.Int(1),
		"sd_vae", pyjson.String("Automatic"), "civitai_api_key", pyjson.String("operator's own"))}
	s.loaded = title(c.Models[0])
	s.known.Store(&c.Models)
	s.added.Store(&c.Models)
	s.routes()
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Serve serves until ctx ends, as if the process was killed then.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	s.mu.Lock()
	s.life = ctx
	s.mu.Unlock()
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	s.c.Logger.Info("simulated A1111 listens", "addr", ln.Addr().String())
	if err := server.Serve(ln); err != nil && ctx.Err() == nil {
		return fmt.Errorf("simsd: %w", err)
	}
	return nil
}

// Done returns the last requests that it has done.
func (s *Server) Done() []Done {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Done(nil), s.done...)
}

// AddModel adds the file of a checkpoint. The server knows of it after a refresh.
func (s *Server) AddModel(file string) {
	files := append(slices.Clone(*s.added.Load()), file)
	s.added.Store(&files)
}

// Break has every request fail with an exception of this name, such as
// "OutOfMemoryError"; none if it is empty.
func (s *Server) Break(exception string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = exception
}

// Busy reports whether it generates.
func (s *Server) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.jobs != 0
}

// hash is the short hash of a checkpoint.
func hash(file string) string {
	sum := uint64(14695981039346656037)
	for _, c := range []byte(file) {
		sum = (sum ^ uint64(c)) * 1099511628211
	}
	return fmt.Sprintf("%010x", sum&(1<<40-1))
}

func title(file string) string { return fmt.Sprintf("%s [%s]", file, hash(file)) }

// stem is a file name without folder and extension.
func stem(file string) string {
	file = file[strings.LastIndex(file, "/")+1:]
	if dot := strings.LastIndexByte(file, '.'); dot > 0 {
		file = file[:dot]
	}
	return file
}

// find returns the title of a checkpoint by one of its aliases, empty for none.
func (s *Server) find(name string) string {
	for _, file := range *s.known.Load() {
		if slices.Contains([]string{title(file), file, stem(file), hash(file), stem(file) + " [" + hash(file) + "]"}, name) {
			return title(file)
		}
	}
	return ""
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
