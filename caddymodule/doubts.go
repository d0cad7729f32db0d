package caddymodule

import (
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
)

// secretDoubts are about the words whose secrets the configuration contains.
func secretDoubts(inline []string) []config.Finding {
	if len(inline) == 0 {
		return nil
	}
	return []config.Finding{{
		Level: config.LevelWarning, About: "secrets",
		Says: "the configuration contains secrets as they are, in " + strings.Join(inline, ", ") + ": whoever reaches Caddy's admin endpoint can read them",
		Do:   "write {env.NAME} or {file./path} in their place; {$NAME} does not help",
	}}
}

// doubts are what the configuration of a site allows and its operator may not have meant.
func (h *Handler) doubts() []config.Finding {
	var list []config.Finding
	if h.loose {
		list = append(list, config.Finding{
			Level: config.LevelWarning, About: "proxies",
			Says: "trusted_proxies is set without trusted_proxies_strict, so clients can write the address that they come from: the hub goes by the proxy's, and cannot tell clients apart",
			Do:   "add trusted_proxies_strict to the servers block",
		})
	}
	if len(h.TrustTenantFrom) > 0 {
		says := "trust_tenant_from goes by addresses, which proves little, and ends with the next release"
		if h.loose {
			says = "trust_tenant_from is without effect, because trusted_proxies is set without trusted_proxies_strict; it ends with the next release"
		}
		list = append(list, config.Finding{
			Level: config.LevelWarning, About: "tenants", Says: says,
			Do: "use tenant_secret, or an API key with the scope act_for_tenants: docs/access.md",
		})
	}
	return list
}

// openDoubt is about a site that other machines reach and that asks for neither a login nor
// a key; nil if there is none.
func openDoubt(operators []string, sites []*Handler) *config.Finding {
	for _, site := range sites {
		// A site for operators lets in nobody else, unless everybody is one.
		closed := site.operators && !slices.Contains(operators, api.NoLogin)
		if site.server == nil || closed || site.asks() {
			continue
		}
		for _, listen := range site.server.Listen {
			address, err := caddy.ParseNetworkAddress(listen)
			if err == nil && !address.IsUnixNetwork() && !isLoopback(address.JoinHostPort(0)) {
				return &config.Finding{
					Level: config.LevelWarning, About: "access",
					Says: "everybody who reaches " + address.JoinHostPort(0) + " may use the hub: it asks for neither a login nor a key",
					Do:   "add a login or `keys required` (docs/access.md), or listen on loopback: COMFYHUB_ADDR=127.0.0.1:8188",
				}
			}
		}
	}
	return nil
}

// noHubDoubt is about a hub that no site serves; nil if one does.
func noHubDoubt(sites []*Handler) *config.Finding {
	if len(sites) > 0 {
		return nil
	}
	return &config.Finding{
		Level: config.LevelWarning, About: "sites", Says: "no site has the directive comfyhub, so no client reaches the hub",
		Do: "add comfyhub to a site, see docs/caddyfile.md#sites",
	}
}

// noLoginDoubt is about operators whom no site can tell from others; nil if one can.
func noLoginDoubt(operators []string, sites []*Handler) *config.Finding {
	named := slices.DeleteFunc(slices.Clone(operators), func(name string) bool { return name == api.NoLogin })
	asks := func(site *Handler) bool {
		return site.server == nil || site.Keys == string(api.KeysOptional) || site.TenantSecret != "" || len(site.TrustTenantFrom) > 0 || site.asks()
	}
	if len(named) == 0 || len(sites) == 0 || slices.ContainsFunc(sites, asks) {
		return nil
	}
	return &config.Finding{
		Level: config.LevelWarning, About: "operators", Says: "nobody can be the operator " + strings.Join(named, " or ") + ": no site asks for a login or a key",
		Do: "add a login such as basic_auth, or `keys required`, to the sites (docs/access.md)",
	}
}

// emptyDoubts are about placeholders for which there is nothing, so that their words have their
// defaults.
func emptyDoubts(empty []string) (list []config.Finding) {
	for _, text := range empty {
		list = append(list, config.Finding{
			Level: config.LevelWarning, About: "placeholders", Says: text + " in the configuration is empty, so its word has its default",
			Do: "set it for the process of the hub, or leave the word out",
		})
	}
	return list
}

// tellSiteDoubts logs what is doubtful about the sites of the hub together. open says that one
// lets everybody in.
func tellSiteDoubts(a *App) (list []config.Finding, open bool) {
	for _, doubt := range []*config.Finding{noHubDoubt(a.sites), noSiteDoubt(a.Operators, a.sites), noLoginDoubt(a.Operators, a.sites)} {
		if doubt != nil {
			list = append(list, *doubt)
		}
	}
	if doubt := openDoubt(a.Operators, a.sites); doubt != nil {
		list, open = append(list, *doubt), true
	}
	for _, doubt := range list {
		slog.New(a.logs).Warn(doubt.Says, "do", doubt.Do)
	}
	return list, open
}

// tellAtValidate tells the doubts of a configuration that is not started, as `caddy validate`
// has it: the sites are known only once the whole web server is, and what comes next is the
// end of the configuration. Of one with an error elsewhere nothing is told.
func tellAtValidate(a *App) {
	if a.begun || !a.valid { // with an error here, asking for the web server would load this once more
		return
	}
	a.begun = true
	if _, err := a.web(); err == nil || errors.Is(err, caddy.ErrNotConfigured) {
		tellSiteDoubts(a)
	}
}

// asks reports whether a site asks its visitors who they are.
func (h *Handler) asks() bool {
	if h.Keys == string(api.KeysRequired) || h.Tenant != defaultTenant && hasPlaceholder(h.Tenant) {
		return true
	}
	for _, policy := range h.server.TLSConnPolicies {
		if policy.ClientAuthentication != nil && policy.ClientAuthentication.Active() {
			return true
		}
	}
	_, asked := askedBefore(h, h.server.Routes, false)
	return asked
}

// askedBefore reports whether a handler is in some routes, and whether another one before it
// asks who somebody is: one of Caddy's or a plugin's logins, or a service that `forward_auth`
// asks.
func askedBefore(h *Handler, routes caddyhttp.RouteList, asked bool) (found, before bool) {
	for _, route := range routes {
		now := asked
		for _, handler := range route.Handlers {
			if handler == h.self {
				return true, now
			}
			if nested, ok := handler.(*caddyhttp.Subroute); ok {
				if found, now = askedBefore(h, nested.Routes, now); found {
					return true, now
				}
				continue
			}
			if module, ok := handler.(caddy.Module); ok {
				id := string(module.CaddyModule().ID)
				now = now || strings.Contains(id, "auth") || id == "http.handlers.reverse_proxy"
			}
		}
		// What a site of another name asks, or one of several blocks `handle`, is not asked here.
		if !route.Terminal && route.Group == "" {
			asked = now
		}
	}
	return false, asked
}
