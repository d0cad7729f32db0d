package hub

import (
	"github.com/comfyhub/comfyhub/internal/classes"
	"github.com/comfyhub/comfyhub/internal/ends"
	"github.com/comfyhub/comfyhub/internal/lastknown"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/userdata"
	"github.com/comfyhub/comfyhub/internal/view"
	"github.com/comfyhub/comfyhub/internal/webui"
)

// Users stores settings and user files. It is available after the first Start.
func (h *Hub) Users() *userdata.Store { return h.users }

// Jobs returns all jobs, as a dialect lists and finds them. It is available after the first Start.
func (h *Hub) Jobs() *view.Jobs { return h.jobs }

// Links makes and opens links to files. It is available after the first Start.
func (h *Hub) Links() *links.Links { return h.links }

// Insight shows the fleet and the jobs as viewers may see them. It is available after the first
// Start.
func (h *Hub) Insight() *view.Insight { return h.insight }

// Board shows the fleet and the queue as they change. It is available after the first Start.
func (h *Hub) Board() *view.Board { return h.board }

// Ends tells clients the ends of their jobs. It is available after the first Start.
func (h *Hub) Ends() *ends.Ends { return h.ends }

// Watches tells how single jobs progress. It is available after the first Start.
func (h *Hub) Watches() *view.Watches { return h.watches }

// Tunnels returns the connections to machines that only dial out. It is available after the first
// Start.
func (h *Hub) Tunnels() *Tunnels { return h.tunnels }

// Operator returns what whoever runs the hub may do and see.
func (h *Hub) Operator() *Operator { return h.operator }

// Checkup checks what the hub depends on.
func (h *Hub) Checkup() *Checkup { return &Checkup{h} }

// Logs returns the logs of all instances. It is available after the first Start.
func (h *Hub) Logs() *view.Logs { return h.logs }

// WebUI returns the files of the web UI's build that the hub keeps. It is available after the first
// Start.
func (h *Hub) WebUI() *webui.Files { return h.webUI }

// LastKnown returns the last answers of instances to what a web UI asks while it loads. It is
// available after the first Start.
func (h *Hub) LastKnown() *lastknown.Answers { return h.known }

// Classes returns the node classes of the fleet. It is available after the first Start.
func (h *Hub) Classes() *classes.Classes { return h.classes }

// Workers returns the programs that fetch their jobs. It is available after the first Start.
func (h *Hub) Workers() *Workers { return h.workers }

// Finder finds jobs. It is available after the first Start.
func (h *Hub) Finder() view.Finder { return view.Finder{Insight: h.insight} }

// Figures are how the fleet has done lately. They are available after the first Start.
func (h *Hub) Figures() *view.Figures { return h.figures }

// Folders are the files of tenants, by folder. They are available after the first Start.
func (h *Hub) Folders() *view.Folders { return h.folders }
