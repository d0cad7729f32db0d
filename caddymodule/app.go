package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"

	"github.com/comfyhub/comfyhub/internal/config"
	_ "github.com/comfyhub/comfyhub/internal/files/s3"
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
	// # Fleet

	// How agents and other hubs are found.
	Gossip *Gossip `json:"gossip,omitempty" word:"gossip"`

	// An instance without an agent, such as `http://10.0.0.5:8188`, which the hub then watches
	// itself; repeatable. With `a1111`, a Stable Diffusion web UI, Forge or SD.Next,
	// started with `--api`, see docs/a1111.md. In its block, `only tenant=<tenant,...>` keeps it
	// for these tenants, as `reserve` does. Default: none.
	Instances []string `json:"instances,omitempty" word:"instance <url> [a1111]"`

	// URLs of A1111 instances without an agent.
	A1111 []string `json:"a1111,omitempty"`

	// The GPU that an instance uses: instances with the same one share its memory, see
	// docs/placement.md#several-instances-on-one-gpu. Default: its own.
	GPUs GPUs `json:"gpus,omitempty" word:"instance <url> { gpu <name> }"`

	// Instances that only some tenants may use, by name; `*` stands for any text; repeatable, see
	// docs/placement.md#reserved-instances. Default: all may use all.
	Reserve Reservations `json:"reserve,omitempty" word:"reserve <instance> tenant=<tenant,...>"`

	// Folder with the static files of ComfyUI's web UI, see docs/install.md#the-web-ui: which
	// no instance can change. Default: they come from an instance.
	Frontend string `json:"frontend,omitempty" word:"frontend <folder>"`

	// Instances or agents from which the web UI's page (without `frontend`) and the scripts of
	// extensions come: the first that is connected. Default: the `instance` lines in their order;
	// without any, the agent that has had its name for longest, never one behind a tunnel. No
	// other takes its place while it is not connected: name another here, or forget it
	// (docs/agents.md#names).
	Primary []string `json:"primary,omitempty" word:"primary <name...>"`

	// Up to 32 classes of machines that are started and stopped by need, see docs/scaling.md: their
	// instances by name (`<class>-*` without `instances`; `*` stands for any text), how many there
	// are, how long one is idle before it is stopped (`5m`), what it costs, and the program that
	// starts and stops them, or its URL and the secret that signs the calls, or a Deployment of
	// Kubernetes, or an Auto Scaling group of EC2; without one, your scaler reads `GET /hub/scale`.
	// With `tokens`, a program or URL gets for each machine a token that is valid once, for so long.
	// Default: none.
	Scale Scales `json:"scale,omitempty" word:"scale <class> { max <n>; min <n>; instances <name...>; idle_after <duration>; price <money>/h; budget <money>/day; tokens <duration>; provider exec <program> [<argument>...]|webhook <url> <secret>|kubernetes [<namespace>/]<deployment>|ec2 <group> [<region>] }"`

	// Where [KEDA](https://keda.sh) asks for the number of instances of each class, see
	// docs/scale-providers.md#keda. Default: nowhere.
	KEDA *KEDA `json:"keda,omitempty" word:"keda <address> { tls <certificate> <key>; clients <ca> }"`

	// Serverless endpoints, up to 16, for jobs that would wait for longer than `after` (`30s`), or
	// that no instance can run, see docs/serverless.md: `runpod` with the id of an endpoint, or `http`
	// with the URL of a service. At most `max` (1) runs at one time, of at most `timeout` (`10m`). Input files
	// and API keys leave only with `private`. `object_info` is a file with what it can run; without it,
	// what the fleet can. Default: none.
	Overflow Overflows `json:"overflow,omitempty" word:"overflow runpod|http { endpoint <id>|url <url>; key {env.NAME}|{file./path}; name <name>; after <duration>; price <money>/s; budget <money>/day; max <n>; timeout <duration>; only class_type <pattern...>; private inputs|secrets...; object_info <file>; files_from <host...> }"`

	// # Redis and storage

	// Where the queue is: `embedded`, in this process and in the data folder, for one hub and a
	// small fleet; or the URL of a Redis server: `redis://[user:password@]host:port[/db]`,
	// `unix:///path`, `redis+sentinel://host:port[,...]/master[/db]`,
	// `redis+cluster://host:port[,...]`; `rediss` in place of `redis` for TLS. Default:
	// `embedded`.
	Redis string `json:"redis,omitempty" word:"redis embedded|<url>"`

	// Replicas of Redis that must have a prompt before it is accepted. If they take longer than a
	// second, `POST /prompt` gets 503; see docs/reliability.md. Default: 0, which trusts the
	// master.
	RedisReplicas int `json:"redis_replicas,omitempty" word:"redis_replicas <n>"`

	// Folder for the embedded queue, the hub's own id, and temporary data. Default: `./data`.
	Data string `json:"data,omitempty" word:"data <folder>"`

	// Where inputs, outputs, settings and workflows are kept: a folder, `file:///folder`, or
	// `s3://bucket?...`, see docs/storage.md. Several hubs on one Redis must share it.
	// Default: the folder `files` in the data folder.
	Storage string `json:"storage,omitempty" word:"storage <folder or URL>"`

	// Secrets of the hubs alone, at least 16 bytes each, that encrypt their own keys in the
	// storage with the first; see docs/keys.md. Default: none; the keys are stored
	// unencrypted.
	Secret []string `json:"secret,omitempty" word:"secret <secret> [<older>...]"`

	// Ended jobs that `/history` keeps; the same as `history { entries <n> }`. Default: 10000.
	History int `json:"history,omitempty" word:"history <n>"`

	// How long an ended job is kept, with the files that no newer job names. Default: no limit.
	HistoryAge caddy.Duration `json:"history_age,omitempty" word:"history { age <duration> }"`

	// Size of the files of ended jobs; the oldest jobs are removed, with their files. Default: no
	// limit.
	HistorySize int64 `json:"history_size,omitempty" word:"history { size <size> }"`

	// How long an upload that no prompt uses is kept. Default: no limit.
	InputAge caddy.Duration `json:"input_age,omitempty" word:"input_age <duration>"`

	// # Access

	// Tenants that may see everything and use the operators' commands below `/hub/`, see
	// docs/access.md#operators. `default` stands for everybody who has not logged in.
	// Default: none.
	Operators []string `json:"operators,omitempty" word:"operators <tenant...>"`

	// What may run: the node classes and files of models that a prompt may or may not name, and
	// the largest values of inputs (`width`, `height`, `steps`, `batch`, `length`). Rules of named
	// tenants replace those for all. Repeatable, see docs/access.md#restrict-what-may-run. Default:
	// everything.
	Rules RuleSets `json:"rules,omitempty" word:"rules [<tenant...>] { deny|allow class_type|model <pattern...>; max <input> <n> }"`

	// The only machines that get the API keys that prompts carry for paid nodes: agents, and
	// instances without one (by name or URL); `*` stands for any text; see
	// docs/placement.md#prompts-with-api-keys. Default: those of `instance` lines, and agents
	// with the gossip key; never pull workers, nor machines behind a tunnel.
	SecretsTo []string `json:"secrets_to,omitempty" word:"secrets_to <instance...>"`

	// Instances without a GPU (by name or URL; `*` stands for any text) that take only prompts whose
	// work Comfy's paid services do. Such prompts go to others only if none of these can run them; see
	// docs/placement.md#instances-without-a-gpu. Default: none.
	APIOnly []string `json:"api_only,omitempty" word:"api_only <instance...>"`

	// Hosts from which the hub fetches inputs that are https URLs: names, `*.example.com`,
	// addresses, CIDRs, or `*` for all public ones, see docs/input-urls.md;
	// repeatable. Private addresses are called only if an address or a CIDR here contains them.
	// Default: none.
	InputsFrom []string `json:"inputs_from,omitempty" word:"inputs_from <host...>"`

	// Hosts that a job's `callback_url` may name, as in `inputs_from`, and the secret that signs
	// the calls, from `{env.NAME}` or `{file./path}`, see docs/callbacks.md. Default: none, a job
	// with a callback is refused.
	Callbacks *Callbacks `json:"callbacks,omitempty" word:"callbacks { allow <host...>; secret <secret> [<older>...] }"`

	// Which calls to custom nodes reach an instance: only files of the web UI, only reads (GET and
	// HEAD), or all. Default: `read` for users with a login, else `on`.
	Passthrough string `json:"passthrough,omitempty" word:"passthrough off|read|on"`

	// Whether calls that install code on instances, or download models to them, are allowed.
	// Default: `off`.
	Manager bool `json:"manager,omitempty" word:"manager off|on"`

	// Whether ComfyUI's page has the hub's panel, with the place of each job in the queue, see
	// docs/web-ui.md#the-panel. Default: `on`.
	QueuePanel string `json:"queue_panel,omitempty" word:"queue_panel on|off"`

	// Whose models a client's `POST /free` unloads: `own`, those of instances on which the client's
	// own job was the last. Default: `own`.
	Free string `json:"free,omitempty" word:"free own|all|off"`

	// `multi` keeps settings and workflows apart by the header `Comfy-User`, as ComfyUI does with
	// `--multi-user`. This is not a login. Default: `single`, each tenant is one user.
	MultiUser bool `json:"multi_user,omitempty" word:"users single|multi"`

	// Where the job API (docs/job-api.md) is: at the root and below `/hub/v1`, only below
	// `/hub/v1`, or nowhere. Default: `root`.
	PlainAPI string `json:"plain_api,omitempty" word:"plain_api root|v1|off"`

	// # Limits

	// Waiting jobs; then 429. Default: 10000.
	MaxQueue int `json:"max_queue,omitempty" word:"max_queue <n>"`

	// Size of the waiting jobs in the queue, compressed, a quarter of it for one tenant; then 429.
	// Default: 1GiB.
	MaxQueueSize int64 `json:"max_queue_size,omitempty" word:"max_queue_size <size>"`

	// Largest body of an upload, and of `POST /prompt` if that is less than 100 MiB. Default:
	// 100MiB, as in ComfyUI.
	MaxUpload int64 `json:"max_upload,omitempty" word:"max_upload <size>"`

	// Memory for reading request bodies (two fifths; requests wait for it, then get 503) and for
	// making previews and masks (three fifths; a picture that needs more than half of `memory` is
	// left to the instance that made it). Sixteen times what the bodies have, and at least four
	// uploads, may lie on the local disk while they arrive. Default: 1280MiB.
	Memory int64 `json:"memory,omitempty" word:"memory <size>"`

	// Open client sockets; one tenant may have a quarter of them. Default: 10000.
	MaxSockets int `json:"max_sockets,omitempty" word:"max_sockets <n>"`

	// What one tenant may have of what all share, see docs/limits.md.
	TenantLimits *TenantLimits `json:"tenant_limits,omitempty" word:"tenant_limits [<tenant...>]"`

	// Limits of single tenants, by name. What is absent is as for all tenants.
	TenantLimitsOf OwnLimits `json:"tenant_limits_of,omitempty"`

	// # Scheduling

	// `fair`: tenants take turns, and so do the clients of each; a prompt may be overtaken for
	// seconds by those whose models are loaded, and by shorter ones. `fifo`: jobs run in order of
	// arrival, see docs/scheduling.md. Default: `fair`.
	Order string `json:"order,omitempty" word:"order fair|fifo"`

	// Interrupts a young bulk run, at most once per job, for an interactive job that would wait
	// longer than this (`5s` if it does not say), see docs/scheduling.md#priority-classes. Default: never.
	PreemptBulk caddy.Duration `json:"preempt_bulk,omitempty" word:"preempt bulk [<duration>]"`

	// Whether idle instances make a batch together, or the outputs of a prompt, see docs/placement.md#batches. Default: on.
	Split string `json:"split,omitempty" word:"split on|off"`
	// Jobs that a busy instance gets ahead of time, see docs/scheduling.md#lookahead. Default: 0.
	Lookahead int `json:"lookahead,omitempty" word:"lookahead 0|1"`

	// Lost runs of one job before it fails. Default: 3.
	MaxAttempts int `json:"max_attempts,omitempty" word:"max_attempts <n>"`

	// Silence during a run before the hub asks the instance, see
	// docs/failures.md#a-run-hangs. Default: 5m.
	StallTimeout caddy.Duration `json:"stall_timeout,omitempty" word:"stall_timeout <duration>"`

	// How long a prompt waits for an instance that could run it. Default: 1h.
	UnrunnableTimeout caddy.Duration `json:"unrunnable_timeout,omitempty" word:"unrunnable_timeout <duration>"`

	// Limit on one run; then it is interrupted and its job fails. Default: none.
	JobTimeout caddy.Duration `json:"job_timeout,omitempty" word:"job_timeout <duration>"`

	// How long a client may be away and still get the messages it missed. Default: 1m.
	ReplayWindow caddy.Duration `json:"replay_window,omitempty" word:"replay_window <duration>"`

	// # Observability

	// OpenTelemetry spans of the life of jobs whose prompts were posted in requests with a sampled
	// span, as Caddy's directive `tracing` makes them; the variables `OTEL_*` of the environment
	// say where they go, see docs/tracing.md. Default: `off`.
	Tracing bool `json:"tracing,omitempty" word:"tracing off|on"`

	LastWords

	// inline are the words whose secrets the configuration contains as they are.
	inline []string
	// sites are the handlers of this configuration.
	sites []*Handler
	// occupied says where another program listens already. Beside a hub that is serving, a
	// configuration may be validated, but not started.
	occupied error

	identity config.Identity
	settings config.Settings
	logs     slog.Handler
	audits   slog.Handler
	shared   *sharedHub
	// empty are texts of which nothing was left when their placeholders were replaced.
	empty []string
	// valid means that this configuration was found to be right.
	valid bool
	// begun means that this configuration was started, and web asks for the web server of one
	// that was not.
	begun bool
	web   func() (any, error)
	// ended says why this configuration is over, once it is.
	ended func() error
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
	for _, doubt := range a.doubts() {
		ctx.Slogger().Warn(doubt.Says, "do", doubt.Do)
	}
	if err := a.resolve(caddy.NewReplacer()); err != nil {
		return err
	}
	for _, doubt := range emptyDoubts(a.empty) {
		ctx.Slogger().Warn(doubt.Says, "do", doubt.Do)
	}
	a.identity = a.hubIdentity()
	a.settings = a.hubSettings()
	a.logs = ctx.Slogger().Handler()
	a.web = func() (any, error) { return ctx.AppIfConfigured("http") }
	a.audits = auditHandler(ctx)
	a.ended = func() error { return context.Cause(ctx) }

	shared, err := acquire(a.identity)
	if err != nil {
		return err
	}
	a.shared, a.held = shared, true
	if err := register(ctx.GetMetricsRegistry(), a.shared.hub.Metrics.Collectors()); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return a.endStreamsAtExit(ctx)
}

// Validate checks what Provision resolved. The lines of a Caddyfile were already
// checked; this is for JSON and for placeholders.
func (a *App) Validate() error {
	err := a.check()
	a.valid = err == nil
	return err
}

// Start opens the hub on its first call and hands it this configuration's
// settings on every one.
func (a *App) Start() error {
	if a.occupied != nil {
		return a.occupied
	}
	if what, held := rivalHolds(a.identity); held {
		return fmt.Errorf("the running hub still holds %s, and redis, data, storage or gossip changed: restart instead of reloading", what)
	}
	a.settings.Doubts = a.doubts()
	for _, site := range a.sites {
		a.settings.Doubts = append(a.settings.Doubts, site.doubts()...)
	}
	told, open := tellSiteDoubts(a)
	a.settings.Doubts, a.settings.Open = append(a.settings.Doubts, told...), open
	a.settings.OperatorsAt = operatorsAt(a.sites)
	a.begun = true
	if err := a.shared.apply(a); err != nil {
		return err
	}
	if err := a.KEDA.start(a.shared.hub.Scaler.Status, a.settings.Logger); err != nil {
		return errors.Join(err, a.shared.withdraw(a)) // Caddy stops only what has started
	}
	return nil
}

// Stop withdraws this configuration's settings if they are the newest, as when
// another app failed to start: the configuration that continues to serve then keeps
// its own. The hub itself is closed by Cleanup, once nothing refers to it.
func (a *App) Stop() error {
	a.KEDA.stop()
	return a.shared.withdraw(a)
}

// Cleanup returns the reference to the hub. Caddy also calls it if Provision failed
// halfway, and returning a reference twice would take the hub from the
// configuration that is serving.
func (a *App) Cleanup() error {
	tellOccupied(a)
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
