package caddymodule

import (
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// parseGlobalOption parses the global option "comfyhub" into the app.
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		d.Next()
		return nil, d.Err("the global option comfyhub is given twice")
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "comfyhub", Value: caddyconfig.JSON(app, nil)}, nil
}

// parseDirective parses the directive "comfyhub" of a site.
func parseDirective(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return handler, nil
}

// UnmarshalCaddyfile sets up the app from Caddyfile tokens.
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the option's name
	if d.NextArg() {
		return d.ArgErr()
	}
	_, err := lines(d, a, "", ownLines{
		"history": a.unmarshalHistory, "instance": a.unmarshalInstance, "preempt": a.unmarshalPreempt, "tenant_limits": a.unmarshalTenantLimits,
	})
	return err
}

// unmarshalHistory parses a line "history <n>" or a block.
func (a *App) unmarshalHistory(d *caddyfile.Dispenser) error {
	entries := wordOf(a, "history").parse
	if d.CountRemainingArgs() > 0 {
		return entries(d)
	}
	if filled, err := lines(d, a, "history { ", ownLines{"entries": entries}); err != nil || filled {
		return err
	}
	return d.Err("history takes a number or a block")
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name
	if d.NextArg() {
		return d.ArgErr()
	}
	_, err := lines(d, h, "", nil)
	return err
}
