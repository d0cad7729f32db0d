package caddymodule

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/comfyhub/comfyhub/internal/api"
)

const (
	// tenantHeader names the tenant for which a trusted caller asks.
	tenantHeader = "X-ComfyHub-Tenant"
	// maxTenant bounds the name of a tenant, in bytes: it becomes part of keys.
	maxTenant = 256

	defaultTenant = "{http.auth.user.id}"

	eventsSerial = "serial"
	eventsLive   = "live"

	keysOff = "off"

	queueAll = "all"
	queueOne = "one"
)

// Handler serves ComfyUI's HTTP and WebSocket API for the fleet of the app
// comfyhub. It answers every request and calls no next handler.
type Handler struct {
	// The tenant that a request's work is charged to. If it is empty the work belongs to the
	// default tenant. Default: `{http.auth.user.id}`, the user that an authentication handler
	// before this one found.
	Tenant string `json:"tenant,omitempty" word:"tenant <placeholder>"`

	// Who sends this as a bearer token may name the tenant in `X-ComfyHub-Tenant`: programs that
	// serve many people, such as a bot, see docs/access.md#programs-that-serve-many-people. At
	// least 16 bytes, and never written here literally. API keys with the scope `act_for_tenants`
	// do the same. Default: none.
	TenantSecret string `json:"tenant_secret,omitempty" word:"tenant_secret {env.NAME}|{file./path}"`

	// Deprecated, gone with the next release: use `tenant_secret`. Addresses of connections whose
	// header `X-ComfyHub-Tenant` is trusted, unless the request came through a proxy. Default:
	// none.
	TrustTenantFrom []string `json:"trust_tenant_from,omitempty" word:"trust_tenant_from <cidr...>|private_ranges" now:"tenant_secret"`

	// One prompt's messages at a time as from a single ComfyUI, or all messages as they come. A
	// socket can also ask for it with `/ws?events=live`. Default: `serial`.
	Events string `json:"events,omitempty" word:"events serial|live"`

	// Whether listings show all running prompts as running, or only one and the others as pending,
	// for clients that cannot handle more. Default: `all`.
	Queue string `json:"queue,omitempty" word:"queue all|one"`

	// The origin of pages of another site that may call the hub, such as `https://ui.example`; `*`
	// for all. Answers then have the headers of ComfyUI's `--enable-cors-header`. Default: none.
	CORS string `json:"cors,omitempty" word:"cors <origin>"`

	// Additional names that the hub answers to on a private address without TLS, such as
	// `*.example.com`; `*` for all. A page on the web can make its own name resolve to such an
	// address. IP addresses, names without a dot, local ones such as `hub.local`, and those of the
	// sites and the machine are always known. Default: none.
	Hosts []string `json:"hosts,omitempty" word:"hosts <name...>|*"`

	// Whether API keys (docs/access.md#programs-api-keys) identify callers; `required` admits
	// only those and users whom Caddy has identified. Default: `off`.
	Keys string `json:"keys,omitempty" word:"keys off|optional|required"`

	hub server
	// operators says that the site is one for operators.
	operators bool
	// self is the handler as the routes of the server have it.
	self    caddyhttp.MiddlewareHandler
	secret  api.TenantSecret
	trusted []netip.Prefix
	// loose says that the server takes an address for the client's that the client writes.
	loose bool
	// server is the one that the site is of; nil in tests.
	server *caddyhttp.Server
	// logger writes the lines of requests that are left out of the access log; nil if there
	// is none.
	logger *slog.Logger
	// names are collected at the first request, because only then all routes exist.
	names func() *hostNames
}

// server is what the handler needs of a hub.
type server interface {
	Serve(w http.ResponseWriter, r *http.Request, v api.Visitor)
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.comfyhub",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision finds the hub. A configuration without the app gets one with its
// defaults.
func (h *Handler) Provision(ctx caddy.Context) error { return h.provision(ctx, h) }

func (h *Handler) provision(ctx caddy.Context, self caddyhttp.MiddlewareHandler) error {
	h.self = self
	app, err := ctx.App("comfyhub")
	if err != nil {
		return err
	}
	h.hub = app.(*App).shared.api
	if h.Tenant == "" {
		h.Tenant = defaultTenant
	}
	h.trusted, err = parseRanges(h.TrustTenantFrom)
	if err != nil {
		return fmt.Errorf("trust_tenant_from: %w", err)
	}
	text, err := resolveSecret(caddy.NewReplacer(), h.TenantSecret)
	if err != nil {
		return fmt.Errorf("tenant_secret: %w", err)
	}
	if err := checkTenantSecret(h.TenantSecret, text); err != nil {
		return fmt.Errorf("tenant_secret: %w", err)
	}
	h.secret = api.NewTenantSecret(text)
	server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	h.server, h.loose = server, looseProxies(server)
	hubs := app.(*App)
	if hubs.sites = append(hubs.sites, h); caddy.ActiveContext().Context == nil {
		if err := occupied(h); err != nil && (hubs.occupied == nil || !h.operators) {
			hubs.occupied = err
		}
	}
	for _, doubt := range h.doubts() {
		ctx.Slogger().Warn(doubt.Says, "do", doubt.Do)
	}
	if server != nil && server.Logs != nil {
		h.logger = ctx.Slogger()
	}
	h.names = sync.OnceValue(func() *hostNames { return namesOf(server, h.Hosts) })
	return nil
}

// Validate checks what was checked line by line in a Caddyfile.
func (h *Handler) Validate() error { return checkWords(h) }

// ServeHTTP passes the request to the hub, together with what only the web server
// knows of its sender.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	from := senderOf(r)
	visitor := api.Visitor{
		Live: h.Events == eventsLive, QueueOne: h.Queue == queueOne, CORS: h.CORS, Secure: r.TLS != nil,
		OperatorsSite: h.operators,
		IP:            from.address, Forwarded: from.forwarded, Proxied: from.hidden,
		Trusted: h.mayName(r, from), Named: r.Header.Get(tenantHeader), TenantSecret: h.secret, Prefix: prefixOf(r, from.declared),
	}
	visitor.Tenant, visitor.Identified = h.tenant(r, visitor.Trusted)
	if h.Keys != keysOff {
		visitor.Keys = api.KeyPolicy(h.Keys)
	}
	if from.declared {
		// The first value is the browser's; later proxies append theirs.
		host, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Host"), ",")
		visitor.Host = strings.TrimSpace(host)
		visitor.Secure = visitor.Secure || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
	}
	visitor.StrangeHost = withinReach(r) && !h.names().knows(r)
	if len(visitor.Tenant) > maxTenant {
		return caddyhttp.Error(http.StatusBadRequest, errors.New("the tenant's name is too long"))
	}
	// Trusted or not, it goes no further: an instance must not see it.
	r.Header.Del(tenantHeader)
	h.hideKey(r, from)
	h.hub.Serve(w, r, visitor)
	return nil
}

// hideKey keeps the access log from writing a URL or a header with a key in it; only
// Authorization it leaves out by itself. Caddy has made the line before any handler runs, so
// that it can only be left out. A line of this handler's stands for it.
func (h *Handler) hideKey(r *http.Request, from sender) {
	if !api.ShowsKey(r) {
		return
	}
	caddyhttp.SetVar(r.Context(), caddyhttp.LogSkipVar, true)
	if h.logger != nil {
		h.logger.Info("left a request with a key in its URL or in X-API-Key out of the access log", "method", r.Method, "host", r.Host, "path", r.URL.Path, "client_ip", from.address)
	}
}

// tenant returns the tenant of a request, and whether somebody has checked it: a fixed word
// of the configuration says nothing about who asks.
func (h *Handler) tenant(r *http.Request, trusted bool) (name string, identified bool) {
	if named := r.Header.Get(tenantHeader); named != "" && trusted {
		return named, true
	}
	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return "", false
	}
	if name, err := repl.ReplaceOrErr(h.Tenant, true, true); err == nil {
		return name, name != h.Tenant
	}
	return repl.ReplaceAll(h.Tenant, ""), false
}

// parseRanges parses addresses, CIDR ranges and the word private_ranges.
func parseRanges(values []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, value := range values {
		texts := []string{value}
		if value == "private_ranges" {
			texts = caddyhttp.PrivateRangesCIDR()
		}
		for _, text := range texts {
			prefix, err := caddyhttp.CIDRExpressionToPrefix(text)
			if err != nil {
				return nil, fmt.Errorf("%q is neither an address nor a CIDR range", text)
			}
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes, nil
}
