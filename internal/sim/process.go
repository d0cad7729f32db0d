package sim

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// process is the part of an instance that ends with the operating system process:
// queue, history, counter, sockets, caches and GPU memory.
type process struct {
	bodyLimit
	srv    *Server
	cfg    Config
	feat   features
	cat    *catalogue
	files  *folders
	queue  *queue
	hub    *hub
	memory *memory
	life   context.Context // ends with the process
	end    context.CancelFunc

	worker     context.Context // ends when the worker thread dies
	haltWorker context.CancelFunc
	workerDone chan struct{}

	interrupted atomic.Bool

	queues queueRoutes
	jobs   jobRoutes
	users  userRoutes
	lists  listings
	media  fileRoutes

	numbers numbering

	terminal terminal

	mu      sync.Mutex
	client  *string // the client that messages of the run go to, nil for everybody
	active  string  // display id of the node last started, "" if none
	running string  // prompt id of the run
}

func newProcess(s *Server) *process {
	p := &process{bodyLimit: bodyLimit(s.cfg.MaxUploadSize), srv: s, cfg: s.cfg, feat: s.feat, cat: s.cat, files: s.files, workerDone: make(chan struct{})}
	p.life, p.end = context.WithCancel(context.Background())
	p.worker, p.haltWorker = context.WithCancel(p.life)
	p.memory = newMemory(s.cfg.VRAM)
	p.hub = newHub(p)
	p.terminal.write("Starting server\n")
	p.queue = newQueue(func(remaining int) { p.hub.publish(nil, statusMessage(remaining, "")) })
	p.queues = queueRoutes{p.bodyLimit, p.feat, p.queue, &p.interrupted}
	p.jobs = jobRoutes(p.queues)
	p.users = userRoutes{p.bodyLimit, p.feat, p.files, p.cfg.MultiUser}
	p.lists = listings{p.feat, p.cfg, p.cat, p.files}
	p.media = fileRoutes{p.bodyLimit, p.feat, p.files, p.assetsOn()}
	go p.work()
	if s.faults.Zombie {
		p.halt()
	}
	return p
}

// stop ends the process and waits for its worker.
func (p *process) stop() {
	p.end()
	p.queue.close()
	p.hub.dropAll()
	<-p.workerDone
}

// halt kills the worker thread only.
func (p *process) halt() {
	p.haltWorker()
	p.queue.close()
}

// statusMessage reports the length of the queue; sid is set only in the first frame
// of a connection.
func statusMessage(remaining int, sid string) *pyjson.Object {
	data := dict("status", dict("exec_info", dict("queue_remaining", remaining)))
	if sid != "" {
		data.Set("sid", pyjson.String(sid))
	}
	return message("status", data)
}

func message(kind string, data *pyjson.Object) *pyjson.Object {
	return dict("type", kind, "data", data)
}

// serverFlags is the answer of /features and of the feature negotiation.
func (p *process) serverFlags() *pyjson.Object {
	o := dict("supports_preview_metadata", true)
	if p.feat.assetRoutes {
		o.Set("supports_model_type_tags", pyjson.Bool(true))
	}
	o.Set("max_upload_size", pyjson.Int(p.cfg.MaxUploadSize))
	if p.feat.assetRoutes {
		o.Set("extension", dict("manager", dict("supports_v4", true)))
		o.Set("node_replacements", pyjson.Bool(true))
		o.Set("assets", pyjson.Bool(p.assetsOn()))
	}
	if p.feat.cliFlags {
		for name, v := range flagsGiven(p.cfg.FeatureFlags).All() {
			if !o.Has(name) {
				o.Set(name, v)
			}
		}
	}
	return o
}

// flagsGiven are those of --feature-flag. Only ComfyUI's own ones have a type, and count only with
// a value of it.
func flagsGiven(list []string) *pyjson.Object {
	flags := &pyjson.Object{}
	for _, flag := range list {
		name, value, valued := strings.Cut(flag, "=")
		if !valued {
			value = "true"
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch name {
		case "":
		case "show_signin_button", "enable_telemetry", "partner_run_gate_enabled":
			if on := strings.EqualFold(value, "true"); on || strings.EqualFold(value, "false") {
				flags.Set(name, pyjson.Bool(on))
			}
		default:
			flags.Set(name, pyjson.String(value))
		}
	}
	return flags
}

func now() int64 { return time.Now().UnixMilli() }
