package mount

import (
	"github.com/comfyhub/comfyhub/internal/api/comfy"
	"github.com/comfyhub/comfyhub/internal/api/comfyv2"
	"github.com/comfyhub/comfyhub/internal/api/ops"
	"github.com/comfyhub/comfyhub/internal/api/plain"
	"github.com/comfyhub/comfyhub/internal/api/pull"
	"github.com/comfyhub/comfyhub/internal/api/sdapi"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/view"
)

// parts are those of a hub, for each room what it needs.
type parts struct{ *hub.Hub }

func (p parts) comfy() comfy.Core {
	return comfy.Core{
		Settings: p.Settings(), Submitter: p.Submitter, Canceller: p.Canceller, Jobs: p.Jobs, Ends: p.Ends, Streams: p.Streams,
		Classes: p.Classes, Insight: p.Insight, Folders: p.Folders, Logs: p.Logs, Uploads: p.Uploads, View: p.View, Held: p.Held,
		Users: p.Users, WebUI: p.WebUI, LastKnown: p.LastKnown, Fleet: p.Operator, Instances: p.Instances,
	}
}

func (p parts) comfyv2() comfyv2.Core {
	return comfyv2.Core{
		Settings: p.Settings(), Submitter: p.Submitter, Canceller: p.Canceller, Jobs: p.Jobs, Watches: p.Watches, Insight: p.Insight,
		Links: p.Links, Uploads: p.Uploads, View: p.View,
	}
}

func (p parts) ops() ops.Core {
	return ops.Core{
		Settings: p.Settings(), Release: p.Release(), Board: p.Board, Figures: p.Figures, Finder: view.Finder{Insight: p.Insight}, Insight: p.Insight, Links: p.Links, Classes: p.Classes,
		Submitter: p.Submitter, Canceller: p.Canceller, Callbacks: p.Callbacks, Operator: p.Operator, Members: p.Members, Tunnels: p.Tunnels, Machines: p.Machines, Scaler: p.Scaler, Endpoints: p.Endpoints, Clients: p.Instances,
	}
}

func (p parts) plain() plain.Core {
	return plain.Core{
		Settings: p.Settings(), Submitter: p.Submitter, Canceller: p.Canceller, Jobs: p.Jobs, Watches: p.Watches, Insight: p.Insight, Classes: p.Classes,
	}
}

func (p parts) pull() pull.Core {
	return pull.Core{Settings: p.Settings(), Tunnels: p.Tunnels, Workers: p.Workers}
}

func (p parts) sdapi() sdapi.Core {
	return sdapi.Core{
		Settings: p.Settings(), Users: p.Users, Submitter: p.Submitter, Canceller: p.Canceller, Jobs: p.Jobs, Watches: p.Watches,
		Insight: p.Insight, Links: p.Links, Classes: p.Classes, Servers: p.Instances,
	}
}
