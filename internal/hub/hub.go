package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/classes"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/datadir"
	"github.com/comfyhub/comfyhub/internal/direct"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/ends"
	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/health"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/logs"
	"github.com/comfyhub/comfyhub/internal/machines"
	"github.com/comfyhub/comfyhub/internal/members"
	"github.com/comfyhub/comfyhub/internal/metrics"
	"github.com/comfyhub/comfyhub/internal/operator"
	"github.com/comfyhub/comfyhub/internal/overflow/endpoints"
	"github.com/comfyhub/comfyhub/internal/peers"
	"github.com/comfyhub/comfyhub/internal/pins"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/retention"
	"github.com/comfyhub/comfyhub/internal/roster"
	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/scale/demand"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/stats"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/tenants"
	"github.com/comfyhub/comfyhub/internal/traces"
	"github.com/comfyhub/comfyhub/internal/tunnel"
	"github.com/comfyhub/comfyhub/internal/upstream"
	"github.com/comfyhub/comfyhub/internal/view"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
	"github.com/comfyhub/comfyhub/internal/worker"
)

// leaseTime is how long a run stays with a hub that does not renew it.
const leaseTime = 15 * time.Second

// Hub is one hub: everything that survives a reload of the configuration.
//
// Many methods: it starts and stops the parts in order, and knows what concerns all requests. What a
// part does is a method of the part.
type Hub struct {
	Parts

	id      config.Identity
	data    datadir.Dir
	tracing traces.Tracing
	// logins tell whether tenants share this hub.
	logins tenants.Logins
	// budget counts what arrives, and intake takes in the bodies of requests.
	budget *budget.Budget
	intake *intake.Intake

	config  atomic.Pointer[config.Settings]
	policy  atomic.Pointer[fleet.Policy] // from the settings
	started atomic.Bool

	// starting guards the first Start and Close; the fields below are set there and only read
	// afterwards.
	starting sync.Mutex
	closed   bool
	failed   error     // why the parts could not be built
	since    time.Time // of the first Start
	self     string    // the lasting id
	direct   *direct.Instances
	pins     *pins.Pins // nil in a fleet without a gossip key
	roster   *roster.Roster
	memory   *roster.Memory
	copies   *files.Collector
	kept     *retention.KeptFiles

	opening     health.Opening
	readiness   health.Readiness
	stopOpening context.CancelFunc
	opened      bool // all parts are built
	// entering guards the start of maintenance against its end.
	entering    sync.Mutex
	maintenance sync.WaitGroup
	stopHouse   context.CancelFunc
}

// New builds a hub without any outside effect: nothing is opened, dialled or started before Start.
func New(id config.Identity) *Hub {
	h := &Hub{id: id, Parts: Parts{Fleet: fleet.NewRegistry(), Clients: comfyui.NewClients(), Inventory: classes.NewInventory()}}
	h.budget = budget.New()
	h.intake = intake.New(intake.Options{Dir: filepath.Join(id.Data, spoolFolder), Budget: h.budget})
	h.config.Store(new(config.Settings{}.WithDefaults()))
	h.data = datadir.Dir{Path: id.Data, Log: h.log}
	h.readiness.Ask = func(ctx context.Context) error { return h.Queue.Writable(ctx) }
	h.Metrics = metrics.New(h.Fleet.Instance, h.state)
	return h
}

// Start opens everything on its first call and applies the settings on every call. It waits a few
// seconds for Redis and the storage, and not at all for agents. A hub whose Redis or storage is
// away starts to serve once both are there: see Started.
func (h *Hub) Start(ctx context.Context, s config.Settings) error {
	s = s.WithDefaults()
	if err := config.CheckFrontend(s.Frontend); err != nil {
		return err
	}
	policy, err := s.AddressPolicy(!h.id.Keyed())
	if err != nil {
		return err
	}
	h.config.Store(&s)
	h.policy.Store(&policy)
	// Held: whoever starts or closes a hub waits for whoever does so already.
	h.starting.Lock()
	defer h.starting.Unlock()
	switch {
	case h.failed != nil:
		return h.failed
	case h.closed:
		return errors.New("hub: closed")
	}
	if err := h.tracing.Set(ctx, s.Tracing); err != nil {
		return err
	}
	if !h.opened {
		if err := h.open(ctx); err != nil {
			// Closed here, once: whoever called Start will also call Close.
			h.closed, h.failed = true, err
			if err := h.shut(ctx); err != nil {
				h.log().Debug("cannot close what has failed to start", "error", err)
			}
			return err
		}
	} else if err := h.Ring.SetSecrets(ctx, s.Secrets); err != nil {
		return fmt.Errorf("hub: secret: %w", err)
	}
	h.limit(s)
	return errors.Join(h.direct.Apply(s.Instances, s.A1111), h.Endpoints.Apply(s.Overflow))
}

// open builds the parts, each from those before it.
func (h *Hub) open(ctx context.Context) (err error) {
	if err = os.MkdirAll(h.id.Data, 0o700); err != nil {
		return fmt.Errorf("hub: data folder: %w", err)
	}
	self := h.data.ID(h.id.GossipBind)
	h.self = self
	boot := self + "/" + datadir.Random(8)
	log := h.log()
	if h.DB, err = redis.Open(ctx, redis.Options{URL: h.id.Redis, Dial: h.id.Dial(), Replicas: h.id.RedisReplicas, Dir: h.id.Data, Observe: h.Metrics.Asked, Logger: log}); err != nil {
		return err
	}
	if err := h.openStorage(ctx); err != nil {
		return err
	}
	if h.Ring, h.Authority, err = newKeys(h.Storage, h.id, h.Settings().Secrets, log); err != nil {
		return err
	}
	h.Keys = apikeys.New(h.DB, h.Ring)
	h.Tenants = tenants.New(h.Settings, h.Keys, &h.logins)
	if err := h.openFiles(); err != nil {
		return err
	}
	h.Links = links.NewLinks(h.Store, h.Ring.Sealer(keyring.Links))
	sealer, err := queue.NewSealed(h.Ring.Sealer(keyring.APIKeys), h.oldSecrets())
	if err != nil {
		return err
	}
	if h.Queue, err = queue.New(h.DB, queue.Options{Lease: leaseTime, Sealer: sealer, Notes: filepath.Join(h.id.Data, notesFolder, "jobs"), HealFirst: h.Store.Recovery().Heal, Logger: log}); err != nil {
		return err
	}
	h.Jobs = &view.Jobs{Queue: h.Queue}
	h.Watches = view.NewWatches(h.Queue.GetAll, h.log)
	h.Ends = &ends.Ends{
		Queue: h.Queue, Boot: boot, Looking: semaphore.NewWeighted(1), Since: func() time.Time { return h.since },
		Window: func() time.Duration { return h.Settings().ReplayWindow }, Log: h.log,
		Confirmed: ends.NewConfirmations(h.Queue.DeliveredEnds, h.log), Old: map[stream.Key]int64{},
	}
	var owners members.Owners
	if h.id.Keyed() {
		h.pins = pins.New(h.DB, h.Ring)
		owners = h.pins
	}
	h.Members = members.New(members.Options{Identity: h.id, Fleet: h.Fleet, Owners: owners, Policy: h.policy.Load, Refused: h.Metrics.Refused, Log: h.log})
	var transport stream.Transport // nil if no hub can share the queue
	var gone func(ctx context.Context, hub string) bool
	if !h.DB.Embedded() {
		transport, gone = peers.New(h.DB, boot), h.Members.Gone
	}
	h.Streams = stream.New(stream.Options{
		SpillDir:  filepath.Join(h.id.Data, "spool"),
		Features:  func() json.RawMessage { return h.Instances.Features() },
		Count:     h.Queue.Count,
		Shares:    h.Tenants.Shares,
		Budget:    h.budget,
		Delivered: h.Ends.Delivered,
		Transport: transport, Neighbours: h.Members,
		Arrived: h.Ends.Arrived,
		Observe: h.Metrics,
		Logger:  log,
	})
	h.Ends.Streams = h.Streams // which call it
	h.Recorder = &metrics.Recorder{Metrics: h.Metrics, Trends: stats.NewTrends(h.DB), Faults: stats.NewFaults(h.DB), Fleet: h.Fleet, Log: h.log}
	left := &upstream.LeftPictures{}
	library := catalog.NewLibrary()
	folders := facade.Folders(filepath.Join(h.id.Data, "workers"))
	version := func() comfyui.Version { return h.Instances.Version() }
	h.Endpoints = endpoints.New(endpoints.Options{DB: h.DB, Queue: h.Queue, Fleet: h.Fleet, Library: library, Folders: folders, Infos: h.Inventory.Infos, Version: version, Log: h.log})
	h.memory = &roster.Memory{DB: h.DB, Fleet: h.Fleet, Log: h.log}
	h.roster = roster.New(roster.Options{DB: h.DB, Storage: h.Storage, Library: library, Logger: log})
	h.Dispatch = dispatch.New(dispatch.Config{
		Queue: h.Queue, Fleet: h.Fleet, Streams: h.Streams, Files: h.Transfer, Paused: h.Storage.Health().Err, Shown: left.Note,
		Connected: h.Clients, Connect: h.connect, Library: library, Roster: h.roster, Overflow: h.Endpoints, Learned: h.Inventory.Learned, Unfit: func(ctx context.Context, j job.Job, body job.Body) *comfyui.Refused {
			return h.Classes.Unfit(ctx, j, body)
		}, Logged: func(instance string, frame []byte) { h.Logs.Pass(instance, frame) },
		EndedElsewhere: h.Ends.EndedElsewhere,
		Hub:            boot, HubID: self, Gone: gone, Settings: h.dispatchSettings, Observe: h.Recorder, Traces: h.tracing.Tracer, Faulted: h.Recorder.Faulted, Logger: log,
	})
	h.Stops = operator.NewStops(h.Queue, h.Fleet, h.Dispatch, h.log)
	h.Pages = origin.NewPageSource(h.Settings, h.Fleet, h.Dispatch.Instances.ClientOf, h.pins, h.log)
	h.Insight = &view.Insight{Queue: h.Queue, Fleet: h.Fleet, Dispatch: h.Dispatch, Streams: h.Streams, Logins: &h.logins, LimitsOf: h.Tenants.Limits, Settings: h.Settings, Stops: h.Stops, Pages: h.Pages, Bond: h.Bond, Searches: view.NewSearches(), Trends: h.Recorder.Trends, Files: h.Store, Dismissed: view.Dismissed{DB: h.DB}, Log: h.log}
	h.Figures = &view.Figures{DB: h.DB, Buckets: h.Recorder.Trends, Noted: h.Recorder.Faults, Insight: h.Insight}
	h.Logs = &view.Logs{Readers: logs.NewReaders(h.Streams), Fleet: h.Fleet, Logins: &h.logins, Insight: h.Insight, Dispatch: h.Dispatch, Log: h.log}
	h.Instances = &upstream.Instances{Dispatch: h.Dispatch, Pages: h.Pages, Named: h.Clients, Streams: h.Streams, Insight: h.Insight, Left: left, Settings: h.Settings, Log: h.log}
	h.Classes = classes.NewClasses(h.Inventory, h.Fleet, h.Dispatch, h.Store, h.roster.Looked(), h.Settings, func() time.Time { return h.since })
	h.Callbacks = submit.NewCallbacks(h.Queue, h.Settings, func(reason string) string { return h.Insight.WithoutAddresses(view.Viewer{Login: true})(reason) }, h.log)
	h.Submitter = &submit.Submitter{
		Queue: h.Queue, Put: h.Queue.Enqueue, Classes: h.Classes, Dispatch: h.Dispatch, Streams: h.Streams, Store: h.Store, Held: h.Held, LimitsOf: h.Tenants.Limits, RulesOf: h.Tenants.Rules,
		Door:     func(key string) submit.Door { return h.Dispatch.Doors.Open(key) },
		Patience: func() time.Duration { return h.Settings().AskPatience }, Log: h.log, Refused: h.Recorder.Refused, Traces: h.tracing.Tracer,
		MaxUpload: func() int64 { return h.Settings().MaxUpload }, Fetcher: submit.NewFetcher(h.Store, h.Settings), Callbacks: h.Callbacks,
	}
	h.Board = view.NewBoard(h.Insight, h.Dispatch, h.Fleet, h.Queue, h.Recorder.Faults, h.log)
	h.Canceller = &submit.Canceller{Queue: h.Queue, Dispatch: h.Dispatch, Streams: h.Streams, Steered: h.Board.Touch}
	h.Machines = machines.New(h.DB, h.Ring)
	h.Scaler = scale.New(scale.Options{
		Tokens: &demand.Tokens{Machines: h.Machines, Sealer: h.Ring.Sealer(keyring.Tokens), Forget: func(ctx context.Context, name string) (bool, error) { return h.Operator.Release(ctx, name) }},
		DB:     h.DB, Hub: h.self, Log: h.log, Classes: func() []scale.Class { return h.Settings().Scale },
		Fleet: &demand.Fleet{Queue: h.Queue, Fleet: h.Fleet, Dispatch: h.Dispatch, Infos: h.Inventory.Infos, Elsewhere: h.roster.Elsewhere, Stops: h.Stops, Reserved: func() schedule.Reservations { return h.Settings().Reserved }},
	})
	h.openViews()
	h.direct = direct.New(direct.Options{Fleet: h.Fleet, Folders: folders, Dial: h.id.Dial(), Log: h.log, Changed: h.Pages.Changed, Relearn: h.Dispatch.Discovery.Relearn})
	if err := h.Members.Join(ctx, self, h.Settings().Join, h.Pages.Seen, h.Dispatch.Discovery.Relearn); err != nil {
		return err
	}
	h.Tunnels = tunnel.NewTunnels(h.Machines.Find, h.Fleet, h.Members.Admit, h.log)
	h.Workers = worker.NewWorkers(worker.Hub{Fleet: h.Fleet, Library: library, Folders: folders, Known: h.Inventory, Version: version, Log: h.log})
	h.Operator = &operator.Operator{
		Fleet: h.Fleet, Clients: h.Clients, Settings: h.Settings, Stops: h.Stops, Insight: h.Insight, Pages: h.Pages, LastKnown: h.LastKnown, Memory: h.memory, Machines: h.Machines, Names: h.Members,
	}
	h.Janitor = &retention.Janitor{
		DB: h.DB, Queue: h.Queue, Sharing: files.NewSharing(h.DB, h.Storage), Retention: files.NewRetention(h.Store), Trash: files.NewTrash(h.Store), Full: h.storageIsFull, Bond: h.Bond, Held: h.Held, Ring: h.Ring, Keys: h.Keys, Logins: &h.logins, Self: self, Settings: h.Settings, Log: h.log,
		Pinned: &retention.PinnedBlobs{Turn: semaphore.NewWeighted(1), Live: h.Queue.LiveKeys, Each: h.Queue.EachBody},
	}
	h.Checkup = &health.Checkup{
		Started: h.Started, Ready: h.Ready, Readiness: &h.readiness, Settings: h.Settings, DB: h.DB, Storage: h.Storage, Bond: h.Bond, Disks: h.Disks, Keys: h.Keys, Machines: h.Machines,
		Pages: h.Pages, Fleet: h.Fleet, Clients: h.Clients, Connected: h.Dispatch.Instances.Clients, Infos: h.Inventory.Infos, Members: h.Members.All,
	}
	if h.id.Keyed() {
		h.Checkup.Gossip = h.id.GossipBind
	}
	h.openWebUI()
	opening, stop := context.WithCancel(context.Background())
	h.stopOpening = stop
	h.opening.Log, h.opening.Check, h.opening.Enter = h.log, h.checkParts, func() { h.enter(opening) }
	if err := h.opening.Begin(opening, h.maintenance.Go); err != nil {
		return err
	}
	h.opened = true
	return nil
}

// Settings returns the current settings. They must not be changed.
func (h *Hub) Settings() *config.Settings { return h.config.Load() }

// Release returns the version of the hub.
func (h *Hub) Release() string { return config.Version }

func (h *Hub) log() *slog.Logger { return h.Settings().Logger }
