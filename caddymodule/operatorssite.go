package caddymodule

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/comfyhub/comfyhub/internal/config"
)

// OperatorsHandler serves the site of the hub's operators: the dashboard and its calls below
// `/hub/`, and nothing of ComfyUI. In a browser, operators may pause, drain, restart, or change
// other tenants' jobs only here, because the scripts of custom nodes run on ComfyUI's page with
// the login of whoever looks. So the site needs a host or a port of its own. It has the words of
// the handler comfyhub; `cors` is without effect.
type OperatorsHandler struct{ Handler }

// CaddyModule returns the Caddy module information.
func (*OperatorsHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.comfyhub_operators",
		New: func() caddy.Module { return new(OperatorsHandler) },
	}
}

// Provision finds the hub, as the handler comfyhub does.
func (h *OperatorsHandler) Provision(ctx caddy.Context) error {
	h.operators = true
	return h.provision(ctx, h)
}

// parseOperatorsDirective parses the directive "comfyhub_operators" of a site.
func parseOperatorsDirective(d httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(OperatorsHandler)
	if err := handler.UnmarshalCaddyfile(d.Dispenser); err != nil {
		return nil, err
	}
	return handler, nil
}

// noSiteDoubt is about operators who may act nowhere in a browser; nil if there are none.
func noSiteDoubt(operators []string, sites []*Handler) *config.Finding {
	if len(operators) == 0 || slices.ContainsFunc(sites, func(site *Handler) bool { return site.operators }) {
		return nil
	}
	return &config.Finding{
		Level: config.LevelWarning, About: "operators",
		Says: "there are operators and no site for them, so in a browser they can only look: pausing, draining and the like are refused there",
		Do:   "add a site with comfyhub_operators (docs/caddyfile.md), on a host or a port of its own",
	}
}

// operatorsAt is where the site for operators is; "" if there is none, or nothing says where.
func operatorsAt(sites []*Handler) string {
	for _, site := range sites {
		if !site.operators || site.server == nil {
			continue
		}
		name := site.hostName()
		for _, listen := range site.server.Listen {
			address, err := caddy.ParseNetworkAddress(listen)
			if err != nil || address.IsUnixNetwork() || address.StartPort == 0 {
				continue
			}
			host, port := name, strconv.FormatUint(uint64(address.StartPort), 10)
			if ip := net.ParseIP(address.Host); host == "" && (ip == nil || !ip.IsUnspecified()) {
				host = address.Host
			}
			scheme := "http"
			if len(site.server.TLSConnPolicies) > 0 || port == "443" {
				scheme = "https"
			}
			return strings.TrimSuffix(scheme+"://"+net.JoinHostPort(host, port), map[string]string{"http": ":80", "https": ":443"}[scheme])
		}
	}
	return ""
}

// hostName is a name that the address of a site asks for; "" if it takes any.
func (h *Handler) hostName() string {
	for _, route := range h.server.Routes {
		if found, _ := askedBefore(h, caddyhttp.RouteList{route}, false); !found {
			continue
		}
		for _, set := range route.MatcherSets {
			for _, matcher := range set {
				if hosts, ok := matcher.(*caddyhttp.MatchHost); ok {
					for _, name := range *hosts {
						if !strings.ContainsAny(name, "*{") {
							return name
						}
					}
				}
			}
		}
	}
	return ""
}
