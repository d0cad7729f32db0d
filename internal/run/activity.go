package run

import (
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// pictureFor is how long after a call of Preview a run keeps its latest picture.
const pictureFor = 15 * time.Second

// Activity is what a connected instance is doing for the hub, as far as this hub sees it.
type Activity struct {
	// Models are the models of the run that began there last.
	Models []string
	// Job is the one this hub follows there; the zero value if there is none.
	Job job.Job
	// Began is when the instance began to execute it; zero until then.
	Began time.Time
	// Node is the id of the running node and Class its class; either may be empty.
	Node, Class string
	// Progress is that of the node, from 0 to 1.
	Progress float64
}

// ActivityOf returns what a connected instance is doing.
func ActivityOf(conn *instance.Link) Activity {
	a := Activity{Models: conn.Models()}
	if r := Of(conn)[0]; r != nil {
		a.Job, a.Began = r.Job(), conn.Since(r.Holder())
		a.Node, a.Class, a.Progress = r.doing.now()
	}
	return a
}

// doing is what a run is doing right now. The run writes it, and whoever watches the fleet reads
// it. The zero value is nothing.
type doing struct {
	mu          sync.Mutex
	node, class string
	progress    float64
	preview     comfyui.Binary
	wanted      time.Time // when the preview is no longer wanted
}

// executes notes the running node. class is empty if nobody has looked it up.
func (d *doing) executes(node, class string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.node != node {
		d.progress = 0
	}
	d.node, d.class = node, class
}

// classless reports whether a node is running whose class is not known.
func (d *doing) classless() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.node != "" && d.class == ""
}

func (d *doing) progressed(fraction float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.progress = fraction
}

// shows notes a picture, if somebody wants it.
func (d *doing) shows(b comfyui.Binary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.preview = (comfyui.Binary{}); time.Now().Before(d.wanted) {
		d.preview = b
	}
}

func (d *doing) now() (node, class string, progress float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.node, d.class, d.progress
}

func (d *doing) picture() (comfyui.Binary, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = time.Now().Add(pictureFor)
	return d.preview, len(d.preview.Image) > 0
}

// classOf returns the class of a node of a graph, "" if it has none.
func classOf(graph []byte, node string) (class string) {
	pyjson.Members(graph, func(id string, n []byte) {
		if id != node {
			return
		}
		pyjson.Members(n, func(key string, value []byte) {
			if key == "class_type" {
				class = pyjson.Unquote(value)
			}
		})
	})
	return class
}

// PreviewAt returns the latest picture of the run that an instance is on, if it is of the given job.
// The first call for a run finds none: pictures are kept only while somebody asks for them.
func PreviewAt(conn *instance.Link, key string) (comfyui.Binary, bool) {
	r := Of(conn)[0]
	if r == nil || r.Job().Key != key {
		return comfyui.Binary{}, false
	}
	return r.doing.picture()
}
