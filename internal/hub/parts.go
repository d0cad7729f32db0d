package hub

import (
	"github.com/comfyhub/comfyhub/internal/lastknown"
	"github.com/comfyhub/comfyhub/internal/userdata"
	"github.com/comfyhub/comfyhub/internal/webui"
)

// Users keeps settings and user files. It is there after the first Start.
func (h *Hub) Users() *userdata.Store { return h.users }

// Jobs are all jobs, as a dialect lists and finds them. They are there after the
// first Start.
func (h *Hub) Jobs() *Jobs { return h.jobs }

// Links makes and opens links to files. It is there after the first Start.
func (h *Hub) Links() *Links { return h.links }

// Insight shows the fleet and the jobs as viewers may see them. It is there after
// the first Start.
func (h *Hub) Insight() *Insight { return h.insight }

// Board shows the fleet and the queue as they change. It is there after the first Start.
func (h *Hub) Board() *Board { return h.board }

// Ends tell clients the ends of their jobs. They are there after the first Start.
func (h *Hub) Ends() *Ends { return h.ends }

// Watches tell how single jobs go on. They are there after the first Start.
func (h *Hub) Watches() *Watches { return h.watches }

// Tunnels are the connections to machines that only dial out. They are there after the
// first Start.
func (h *Hub) Tunnels() *Tunnels { return h.tunnels }

// Operator is what whoever runs the hub may do and see.
func (h *Hub) Operator() *Operator { return h.operator }

// Checkup looks at what the hub depends on.
func (h *Hub) Checkup() *Checkup { return &Checkup{h} }

// Logs are the logs of all instances. They are there after the first Start.
func (h *Hub) Logs() *Logs { return h.logs }

// WebUI are the files of the web UI's build that the hub keeps. They are there
// after the first Start.
func (h *Hub) WebUI() *webui.Files { return h.webUI }

// LastKnown are the last answers of instances to what a web UI asks while it
// loads. They are there after the first Start.
func (h *Hub) LastKnown() *lastknown.Answers { return h.known }

// Classes are the node classes of the fleet. They are there after the first
// Start.
func (h *Hub) Classes() *Classes { return h.classes }

// Workers are the programs that fetch their jobs. They are there after the first Start.
func (h *Hub) Workers() *Workers { return h.workers }
