// Package caddymodule makes the hub a Caddy module. It is an adapter and
// nothing more: it reads the configuration, keeps one [hub.Hub] alive through
// reloads, hands it requests, and puts its metrics and its verbs where Caddy's
// users look for them. What a hub does is told by package hub.
//
// Four modules and their words:
//
//   - app comfyhub: the fleet ([App]), global option "comfyhub" in a Caddyfile
//   - http.handlers.comfyhub: ComfyUI's API ([Handler]), directive "comfyhub"
//   - http.handlers.comfyhub_operators: the operators' site ([OperatorsHandler]), directive
//     "comfyhub_operators"
//   - admin.api.comfyhub: liveness, readiness and verbs over the fleet
package caddymodule

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// All that this package registers with Caddy is registered here.
func init() {
	caddy.RegisterModule(new(App))
	caddy.RegisterModule(new(Handler))
	caddy.RegisterModule(new(OperatorsHandler))
	caddy.RegisterModule(adminAPI{})

	httpcaddyfile.RegisterGlobalOption("comfyhub", parseGlobalOption)
	httpcaddyfile.RegisterHandlerDirective("comfyhub", parseDirective)
	httpcaddyfile.RegisterHandlerDirective("comfyhub_operators", parseOperatorsDirective)
	// Each handler ends the chain, like reverse_proxy: what comes after it in a
	// site is never reached, so authentication and limits must come before.
	httpcaddyfile.RegisterDirectiveOrder("comfyhub", httpcaddyfile.Before, "reverse_proxy")
	httpcaddyfile.RegisterDirectiveOrder("comfyhub_operators", httpcaddyfile.Before, "reverse_proxy")

	splitAddresses()
}

// Interface guards.
var (
	_ caddy.App             = (*App)(nil)
	_ caddy.Provisioner     = (*App)(nil)
	_ caddy.Validator       = (*App)(nil)
	_ caddy.CleanerUpper    = (*App)(nil)
	_ caddyevents.Handler   = (*App)(nil)
	_ caddyfile.Unmarshaler = (*App)(nil)

	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ caddyfile.Unmarshaler       = (*Handler)(nil)

	_ caddy.Provisioner           = (*OperatorsHandler)(nil)
	_ caddyhttp.MiddlewareHandler = (*OperatorsHandler)(nil)

	_ caddy.AdminRouter = adminAPI{}
)
