package hub

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// connect makes the client of an instance. An agent proves with its own key that it is the one
// whose report named the address, and the hub proves with the hubs' key that it is a hub.
func (h *Hub) connect(i fleet.Instance) (*comfyui.Client, error) {
	o := comfyui.Options{UserAgent: config.UserAgent, ViaAgent: !i.Direct, Dial: h.id.Dial()}
	u, err := url.Parse(i.URL)
	switch {
	case err == nil && u.Scheme == fleet.WorkerScheme && i.Kind == fleet.KindWorker:
		o.Dial = h.Workers.Dialer(i.Name)
		return comfyui.NewClient("http://worker", o)
	case err == nil && u.Scheme == fleet.OverflowScheme && i.Kind == fleet.KindOverflow:
		o.Dial = h.Endpoints.Dialer(i.Name)
		return comfyui.NewClient("http://overflow", o)
	case i.Agent == "" && i.Kind == fleet.KindA1111:
		o.Dial = h.direct.Dialer(i.Name)
		return comfyui.NewClient("http://a1111", o)
	case err == nil && u.Scheme == fleet.TunnelScheme:
		u.Scheme, u.Host = "http", i.Agent
		o.Dial = h.Tunnels.Dialer(i.Agent)
		return comfyui.NewClient(u.String(), o)
	}
	if !i.Direct && strings.HasPrefix(i.URL, "https://") {
		client, err := h.Authority.DialTLS(i.Key)
		if err != nil {
			return nil, fmt.Errorf("hub: %w", err)
		}
		o.TLS = client
	}
	return comfyui.NewClient(i.URL, o)
}
