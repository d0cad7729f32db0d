package caddymodule

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"

	"github.com/comfyhub/comfyhub/internal/hub"
)

// closeTimeout bounds how long a hub may take to close: Caddy gives destructors no
// deadline, and an exit must not hang on a Redis that is unavailable.
const closeTimeout = 10 * time.Second

// App is the fleet behind one hub: where its queue is, who may join, and the limits
// of what clients may ask.
//
// All strings accept placeholders such as `{env.NAME}` and
// `{file./run/secrets/name}`, which are replaced when the configuration is loaded,
// so that secrets stay out of it.
//
// A reload keeps the hub with its sockets, its running jobs and its counters, and
// replaces its settings. The hub's identity is `redis`, `data`, `storage` and
// `gossip` without `join` and `allow_direct`: changing one of these needs a
// restart, unless the new hub shares neither a port nor a folder with the old one.
type App struct {
	// Where the queue is: `embedded`, or the URL of a Redis server:
	// `redis://[user:password@]host:port[/db]`, `unix:///path`,
	// `redis+sentinel://host:port[,host:port...]/master[/db]` or
	// `redis+cluster://host:port[,host:port...]`, with `rediss` in place of
	// `redis` for TLS. `embedded` keeps the queue in this process and in the
	// data folder; it is meant for one hub and a small fleet. Default:
	// `embedded`.
	Redis string `json:"redis,omitempty"`

	// How many replicas of Redis must have a prompt before it is accepted. If they take
	// longer than a second, `POST /prompt` gets 503. Default: 0, which trusts the master.
	RedisReplicas int `json:"redis_replicas,omitempty"`

	// Folder for the embedded queue, the hub's own id, and temporary data. Default:
	// `./data`.
	Data string `json:"data,omitempty"`

	// Where inputs, outputs, settings and user files are stored: a folder,
	// `file:///folder`, or `s3://bucket?region=...`, for stores other than Amazon's
	// with `endpoint=https://host:port`; `prefix=` names a folder in the bucket.
	// Credentials are those of the usual AWS environment. Several hubs on one Redis
	// must share it. Default: the folder `files` in the data folder.
	Storage string `json:"storage,omitempty"`

	// Secrets of the operator, at least 16 bytes each, that no GPU machine may
	// have. The hubs' own keys, which protect links and API keys, are in the
	// storage. With a secret they are encrypted with the first, and any of them can
	// decrypt them, so that it can be changed: `old new`, then `new old`, then
	// `new`, on all hubs each time. Default: none; the keys are stored unencrypted.
	Secret []string `json:"secret,omitempty"`

	// How agents and other hubs are found.
	Gossip *Gossip `json:"gossip,omitempty"`

	// URLs of ComfyUI servers without an agent, such as `http://10.0.0.5:8188`. The
	// hub then watches them itself.
	Instances []string `json:"instances,omitempty"`

	// URLs of servers of A1111's API (Stable Diffusion web UI, Forge, SD.Next), started with
	// `--api`, without an agent, such as `http://10.0.0.5:7860`.
	A1111 []string `json:"a1111,omitempty"`

	// Instances that only some tenants may use. Default: all may use all.
	Reserve Reservations `json:"reserve,omitempty"`

	// Agents, and instances without one, that get the API keys of prompts
	// (`api_key_comfy_org`), by their names, in which each `*` stands for any text; or the
	// URLs of some in `instances`.
	// Default: all but machines that a token has let in (pull workers, tunnels).
	SecretsTo []string `json:"secrets_to,omitempty"`

	// The GPUs of instances, where several use the same one. Default: each has its own.
	GPUs GPUs `json:"gpus,omitempty"`

	// How many runs of one job may be lost before the job fails. Default: 3.
	MaxAttempts int `json:"max_attempts,omitempty"`

	// How long an instance may be silent during a run before the hub asks it what
	// it is doing. Default: 5m.
	StallTimeout caddy.Duration `json:"stall_timeout,omitempty"`

	// How long a server may give no sign of life during a run before the job runs elsewhere.
	// Default: 15s.
	ContactTimeout caddy.Duration `json:"contact_timeout,omitempty"`

	// How many jobs may wait; further prompts get 429. Default: 10000.
	MaxQueue int `json:"max_queue,omitempty"`

	// The order in which jobs run: `fair` or `fifo`. With `fair`, tenants take turns,
	// and so do the clients of each; with `fifo`, jobs run as they come. Default:
	// `fair`.
	Order string `json:"order,omitempty"`

	// For how long a waiting job may be overtaken by jobs of others whose models a
	// server has loaded; 0 means never. Default: 10s, never with the order `fifo`.
	Overtaking *caddy.Duration `json:"overtaking,omitempty"`

	// For how long a waiting job may be overtaken by shorter ones of others, if it does
	// not take less time itself; 0 means never. Default: 2m, never with the order `fifo`.
	ShortFirst *caddy.Duration `json:"short_first,omitempty"`

	// Lets a bulk run be interrupted, once for each job and while it has done less than
	// half of its work, for an interactive job that would wait longer than this. See
	// `band` in `tenant_limits`. Default: never.
	PreemptBulk caddy.Duration `json:"preempt_bulk,omitempty"`

	// How much of the instances' time tenants get beside others, from 0.001 to 1000.
	// Default: 1 for each that is not named.
	TenantWeights TenantWeights `json:"tenant_weights,omitempty"`

	// How many jobs an instance gets ahead while it runs one: 0 or 1. With 1 ComfyUI
	// begins its next prompt without waiting for the hub. Default: 0.
	Lookahead int `json:"lookahead,omitempty"`

	// How many bytes the waiting jobs may occupy in the queue, compressed; further
	// prompts get 429. Default: 1073741824 (1 GiB).
	MaxQueueSize int64 `json:"max_queue_size,omitempty"`

	// Largest body of POST /prompt, in bytes. Default: 104857600 (100 MiB).
	MaxBody int64 `json:"max_body,omitempty"`

	// How much memory reading request bodies may use at one time, in bytes;
	// requests wait for it, then get 503. Default: 536870912 (512 MiB).
	BodyMemory int64 `json:"body_memory,omitempty"`

	// How much may lie on the local disk while it arrives or is being made (uploads,
	// large bodies, pictures), in bytes, half of it for one tenant; then 503. Some of the
	// disk stays free in any case. Default: 16 times body_memory, and enough for four
	// uploads.
	SpoolSize int64 `json:"spool_size,omitempty"`

	// Largest body of an upload, in bytes. Default: 104857600 (100 MiB).
	MaxUpload int64 `json:"max_upload,omitempty"`

	// Hosts from which inputs are fetched whose value in a prompt is an https URL: names,
	// `*.example.com` for all names below one, IP addresses, CIDRs, or `*` for all public
	// hosts; all but a CIDR may have a port. Default port: 443. Private addresses are
	// called only if an IP address or a CIDR in this list contains them. Default: none.
	InputsFrom []string `json:"inputs_from,omitempty"`

	// Callbacks of jobs: the hosts that they may name, and what signs them. Default:
	// none, a job with a callback is refused.
	Callbacks *Callbacks `json:"callbacks,omitempty"`

	// Memory in bytes for all previews and masks that are made at one time. A
	// picture that needs more than five sixths of it is left to the instance that
	// made it. Default: 805306368 (768 MiB).
	PictureMemory int64 `json:"picture_memory,omitempty"`

	// How many client sockets may be open at once. Default: 10000.
	MaxSockets int `json:"max_sockets,omitempty"`

	// How long a job waits for an instance that could run it (one that has its
	// node classes and its models) before it fails. Default: 1h.
	UnrunnableTimeout caddy.Duration `json:"unrunnable_timeout,omitempty"`

	// How old the hub's information about the servers' node classes and models may
	// be when a client reads /object_info; beyond that it asks the servers again.
	// Default: 2s.
	CatalogAge caddy.Duration `json:"catalog_age,omitempty"`

	// How long one run may take; after that it is interrupted and its job fails.
	// Default: no limit.
	JobTimeout caddy.Duration `json:"job_timeout,omitempty"`

	// How long a client may be disconnected and still be sent the events that it
	// missed. Default: 60s.
	ReplayWindow caddy.Duration `json:"replay_window,omitempty"`

	// How many ended jobs /history keeps. Default: 10000.
	History int `json:"history,omitempty"`

	// How long an ended job is kept, with the files that no newer job names.
	// Default: no limit.
	HistoryAge caddy.Duration `json:"history_age,omitempty"`

	// How many bytes the files made by jobs may take; the oldest jobs are removed,
	// with their files. Default: no limit.
	HistorySize int64 `json:"history_size,omitempty"`

	// How long an uploaded file is kept that no prompt uses. Default: no limit.
	InputAge caddy.Duration `json:"input_age,omitempty"`

	// How much of the shared resources one tenant may use.
	TenantLimits *TenantLimits `json:"tenant_limits,omitempty"`

	// Limits of single tenants, by name. What is absent is as for all tenants.
	TenantLimitsOf OwnLimits `json:"tenant_limits_of,omitempty"`

	// What may run: node classes, models, and the largest sizes. Default: everything.
	Rules []*RuleSet `json:"rules,omitempty"`

	// Tenants that are operators: they see the jobs of all tenants and the whole fleet, and
	// may use the commands below `/hub/` that cancel anybody's job, or pause, drain and
	// restart instances. `default` stands for everybody who has not logged in. Default: none.
	Operators []string `json:"operators,omitempty"`

	// Allow calls that install or change code on instances (ComfyUI-Manager and the
	// like). Default: false, they get 403.
	Manager bool `json:"manager,omitempty"`

	// Which requests other than the hub's own reach an instance, such as calls of
	// custom nodes: `off`, only files of the web UI and of extensions; `read`, GET
	// and HEAD, no WebSockets; `on`, all. Default: `read` for callers who have
	// logged in, `on` if nobody does.
	Passthrough string `json:"passthrough,omitempty"`

	// Where the plain job API (`/submit`, `/status/{id}` and others) is: `root`, below
	// `/hub/v1` and at the root; `v1`, below `/hub/v1` only; `off`. Default: `root`.
	PlainAPI string `json:"plain_api,omitempty"`

	// Whether clients of A1111's API (`/sdapi/v1/*`) may use the hub: `on` or `off`.
	// Default: `on`.
	A1111API string `json:"a1111_api,omitempty"`

	// Folder with the static files of ComfyUI's web UI. Default: they come
	// from an instance.
	Frontend string `json:"frontend,omitempty"`

	// Instances or agents, by their names, from which the web UI's page and the scripts of
	// extensions come: the first that is there. Default: the instances of `instance` in their
	// order; else the agent that has had its name for longest.
	Primary []string `json:"primary,omitempty"`

	// Keep settings and saved workflows apart by the header `Comfy-User`, as
	// ComfyUI does with `--multi-user`. This is not a login: anybody who knows a
	// user's id is that user. Default: false, each tenant is one user.
	MultiUser bool `json:"multi_user,omitempty"`

	// Make OpenTelemetry spans of the life of jobs whose prompts were posted in requests with
	// a sampled span, as Caddy's directive `tracing` makes them. The variables `OTEL_*` of the
	// environment say where they go. Default: false.
	Tracing bool `json:"tracing,omitempty"`

	// Whose models a client's `POST /free` unloads: `own`, those of instances
	// on which the client's own job was the last; `all`, those of all
	// instances; `off`, nobody's. Default: `own`.
	Free string `json:"free,omitempty"`

	// inline are the words whose secrets the configuration contains as they are.
	inline []string
	// sites are the handlers of this configuration.
	sites []*Handler

	identity hub.Identity
	settings hub.Settings
	logs     slog.Handler
	audits   slog.Handler
	shared   *sharedHub
	// begun means that this configuration was started, and web asks for the web server of one
	// that was not.
	begun bool
	web   func() (any, error)
	// held means that a reference to shared still has to be returned to the pool.
	// The pointer itself stays, because requests of an older configuration outlive
	// its Cleanup.
	held bool
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "comfyhub",
		New: func() caddy.Module { return new(App) },
	}
}

// Provision resolves placeholders and takes a reference to the hub of this
// configuration. It opens, dials and starts nothing, because `caddy validate` runs
// it beside a hub that is serving.
func (a *App) Provision(ctx caddy.Context) error {
	a.inline = inlineSecrets(a)
	for _, doubt := range secretDoubts(a.inline) {
		ctx.Slogger().Warn(doubt.Says, "do", doubt.Do)
	}
	if err := a.resolve(caddy.NewReplacer()); err != nil {
		return err
	}
	a.identity = a.hubIdentity()
	a.settings = a.hubSettings()
	a.logs = ctx.Slogger().Handler()
	a.web = func() (any, error) { return ctx.AppIfConfigured("http") }
	a.audits = auditHandler(ctx)

	shared, err := acquire(a.identity)
	if err != nil {
		return err
	}
	a.shared, a.held = shared, true
	if err := register(ctx.GetMetricsRegistry(), a.shared.hub.Collectors()); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return a.endStreamsAtExit(ctx)
}

// Validate checks what Provision resolved. The lines of a Caddyfile were already
// checked; this is for JSON and for placeholders.
func (a *App) Validate() error { return a.check() }

// Start opens the hub on its first call and hands it this configuration's
// settings on every one.
func (a *App) Start() error {
	if what, held := rivalHolds(a.identity); held {
		return fmt.Errorf("the running hub still holds %s, and redis, data, storage or gossip changed: restart instead of reloading", what)
	}
	a.settings.Doubts = secretDoubts(a.inline)
	for _, site := range a.sites {
		a.settings.Doubts = append(a.settings.Doubts, site.doubts()...)
	}
	told, open := tellSiteDoubts(a)
	a.settings.Doubts, a.settings.Open = append(a.settings.Doubts, told...), open
	a.settings.OperatorsAt = operatorsAt(a.sites)
	a.begun = true
	return a.shared.apply(a)
}

// Stop withdraws this configuration's settings if they are the newest, as when
// another app failed to start: the configuration that continues to serve then keeps
// its own. The hub itself is closed by Cleanup, once nothing refers to it.
func (a *App) Stop() error {
	return a.shared.withdraw(a)
}

// Cleanup returns the reference to the hub. Caddy also calls it if Provision failed
// halfway, and returning a reference twice would take the hub from the
// configuration that is serving.
func (a *App) Cleanup() error {
	tellAtValidate(a)
	if !a.held {
		return nil
	}
	a.held = false
	return release(a.identity)
}

// Handle closes the hub when the process is about to exit, before any app is
// stopped. If this were left to Cleanup, the web server would first wait a whole
// grace period for event streams that only the hub can end.
func (a *App) Handle(context.Context, caddy.Event) error {
	if !caddy.Exiting() {
		return nil
	}
	return a.shared.Destruct()
}

func (a *App) endStreamsAtExit(ctx caddy.Context) error {
	app, err := ctx.App("events")
	if err != nil {
		return err
	}
	return app.(*caddyevents.App).On("stopping", a)
}
