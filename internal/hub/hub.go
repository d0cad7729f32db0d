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

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/classes"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/ends"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/lastknown"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/logs"
	"github.com/comfyhub/comfyhub/internal/machines"
	"github.com/comfyhub/comfyhub/internal/metrics"
	"github.com/comfyhub/comfyhub/internal/pins"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/retention"
	"github.com/comfyhub/comfyhub/internal/roster"
	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/stats"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/tenants"
	"github.com/comfyhub/comfyhub/internal/traces"
	"github.com/comfyhub/comfyhub/internal/userdata"
	"github.com/comfyhub/comfyhub/internal/view"
	"github.com/comfyhub/comfyhub/internal/webui"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
)

// leaseTime is how long a run stays with a hub that does not renew it.
const leaseTime = 15 * time.Second

// Hub is one hub: everything that survives a reload of the configuration.
//
// Many methods: it starts and stops the parts in order, and has an accessor for each part that a
// dialect or an operator uses. What a part does is a method of the part.
type Hub struct {
	// Instances are the connected ones. They are available after the first Start.
	*Instances

	id      config.Identity
	measure *metrics.Metrics
	live    *gauges
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
	starting        sync.Mutex
	closed          bool
	failed          error     // why the parts could not be built
	since           time.Time // of the first Start
	self            string    // the lasting id
	db              *redis.DB
	storage         *files.Storage
	disks           []*metrics.Disk
	store           *files.Store
	copies          *files.Collector
	transfer        *files.Transfer
	view            *files.View
	uploads         *files.Uploads
	users           *userdata.Store
	bond            *files.Bond
	held            *files.Held
	known           *lastknown.Answers
	roster          *roster.Roster
	webUI           *webui.Files
	pages           *origin.PageSource
	folders         *view.Folders
	figures         *view.Figures
	ring            *keyring.Ring
	authority       *gossip.Authority
	links           *links.Links
	tenants         *tenants.Tenants
	queue           *queue.Queue
	jobs            *view.Jobs
	insight         *view.Insight
	streams         *stream.Streams
	fleet           *fleet.Registry
	inventory       *classes.Inventory
	clients         *comfyui.Clients
	kept            *retention.KeptFiles
	dispatch        *dispatch.Dispatcher
	classes         *classes.Classes
	logs            *view.Logs
	operator        *Operator
	gossip          *membership
	staticInstances *staticInstances
	tunnels         *Tunnels
	keys            *apikeys.Keys
	scaler          *scale.Scaler
	workers         *Workers
	overflow        *overflows

	submitter *submit.Submitter
	canceller *submit.Canceller
	ends      *ends.Ends
	watches   *view.Watches
	callbacks *submit.Callbacks
	stops     *stops
	janitor   *retention.Janitor
	recorder  *metrics.Recorder
	board     *view.Board

	opening     opening
	readiness   readiness
	stopOpening context.CancelFunc
	opened      bool // all parts are built
	// entering guards the start of maintenance against its end.
	entering    sync.Mutex
	maintenance sync.WaitGroup
	stopHouse   context.CancelFunc
}

// New builds a hub without any outside effect: nothing is opened, dialled or started before Start.
func New(id config.Identity) *Hub {
	h := &Hub{id: id, fleet: fleet.NewRegistry(), clients: comfyui.NewClients(), inventory: classes.NewInventory()}
	h.budget = budget.New()
	h.intake = intake.New(intake.Options{Dir: filepath.Join(id.Data, spoolFolder), Budget: h.budget})
	h.config.Store(new(config.Settings{}.WithDefaults()))
	h.operator = &Operator{fleet: h.fleet, clients: h.clients, settings: h.Settings, started: &h.started}
	h.opening = opening{log: h.log, check: h.checkParts}
	h.readiness.ask = func(ctx context.Context) error { return h.queue.Writable(ctx) }
	h.measure, h.live = metrics.New(h.fleet.Instance), newGauges(h)
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
	} else if err := h.ring.SetSecrets(ctx, s.Secrets); err != nil {
		return fmt.Errorf("hub: secret: %w", err)
	}
	h.limit(s)
	return errors.Join(h.staticInstances.apply(s.Instances, s.A1111), h.overflow.apply(s.Overflow))
}

// open builds the parts, each from those before it.
func (h *Hub) open(ctx context.Context) (err error) {
	if err = os.MkdirAll(h.id.Data, 0o700); err != nil {
		return fmt.Errorf("hub: data folder: %w", err)
	}
	self := h.ownID()
	h.self = self
	boot := self + "/" + randomText(8)
	log := h.log()
	if h.db, err = redis.Open(ctx, redis.Options{URL: h.id.Redis, Dial: h.id.Dial(), Replicas: h.id.RedisReplicas, Dir: h.id.Data, Observe: h.measure.Asked, Logger: log}); err != nil {
		return err
	}
	if err := h.openStorage(ctx); err != nil {
		return err
	}
	if h.ring, h.authority, err = newKeys(h.storage, h.id, h.Settings().Secrets, log); err != nil {
		return err
	}
	h.keys = apikeys.New(h.db, h.ring)
	h.tenants = tenants.New(h.Settings, h.keys, &h.logins)
	if err := h.openFiles(); err != nil {
		return err
	}
	h.links = links.NewLinks(h.store, h.ring.Sealer(keyring.Links))
	sealer, err := newAPIKeys(h.id, h.ring, log)
	if err != nil {
		return err
	}
	if h.queue, err = queue.New(h.db, queue.Options{Lease: leaseTime, Sealer: sealer, Notes: filepath.Join(h.id.Data, notesFolder, "jobs"), HealFirst: h.store.Heal, Logger: log}); err != nil {
		return err
	}
	h.jobs = &view.Jobs{Queue: h.queue}
	h.watches = view.NewWatches(h.queue.GetAll, h.log)
	h.ends = &ends.Ends{
		Queue: h.queue, Boot: boot, Looking: semaphore.NewWeighted(1), Since: func() time.Time { return h.since },
		Window: func() time.Duration { return h.Settings().ReplayWindow }, Log: h.log,
		Confirmed: ends.NewConfirmations(h.queue.DeliveredEnds, h.log), Old: map[stream.Key]int64{},
	}
	near := &neighbours{}
	h.streams = stream.New(stream.Options{
		SpillDir:  filepath.Join(h.id.Data, "spool"),
		Features:  func() json.RawMessage { return h.Features() },
		Count:     h.queue.Count,
		Shares:    h.tenants.Shares,
		Budget:    h.budget,
		Delivered: h.ends.Delivered,
		Transport: h.transport(boot), Neighbours: near,
		Arrived: h.ends.Arrived,
		Observe: h.measure,
		Logger:  log,
	})
	h.ends.Streams = h.streams // which call it
	h.recorder = &metrics.Recorder{Metrics: h.measure, Trends: stats.NewTrends(h.db), Faults: stats.NewFaults(h.db), Fleet: h.fleet, Log: h.log}
	left := &leftPictures{}
	library := catalog.NewLibrary()
	h.overflow = newOverflows(h, library)
	h.roster = roster.New(roster.Options{DB: h.db, Storage: h.storage, Library: library, Logger: log})
	h.dispatch = dispatch.New(dispatch.Config{
		Queue: h.queue, Fleet: h.fleet, Streams: h.streams, Files: h.transfer, Paused: h.storage.Health().Err, Shown: left.note,
		Connected: h.clients, Connect: h.connect, Library: library, Roster: h.roster, Overflow: h.overflow, Learned: h.inventory.Learned, Unfit: func(ctx context.Context, j job.Job, body job.Body) *comfyui.Refused {
			return h.classes.Unfit(ctx, j, body)
		}, Logged: func(instance string, frame []byte) { h.logs.Pass(instance, frame) },
		EndedElsewhere: h.ends.EndedElsewhere,
		Hub:            boot, HubID: self, Gone: h.goneHubs(), Settings: h.dispatchSettings, Observe: h.recorder, Traces: h.tracing.Tracer, Faulted: h.recorder.Faulted, Logger: log,
	})
	h.stops = &stops{looking: semaphore.NewWeighted(1), queue: h.queue, fleet: h.fleet, dispatch: h.dispatch, log: h.log}
	var known *pins.Pins // nil in a fleet without a gossip key
	if h.id.Keyed() {
		known = pins.New(h.db, h.ring)
	}
	h.pages = origin.NewPageSource(h.Settings, h.fleet, h.dispatch.Instances.ClientOf, known, h.log)
	h.insight = &view.Insight{Queue: h.queue, Fleet: h.fleet, Dispatch: h.dispatch, Streams: h.streams, Logins: &h.logins, LimitsOf: h.tenants.Limits, Settings: h.Settings, Stops: h.stops, Pages: h.pages, Bond: h.bond, Searches: view.NewSearches(), Log: h.log}
	h.figures = &view.Figures{DB: h.db, Buckets: h.recorder.Trends, Noted: h.recorder.Faults, Insight: h.insight}
	h.logs = &view.Logs{Readers: logs.NewReaders(h.streams), Fleet: h.fleet, Logins: &h.logins, Insight: h.insight, Dispatch: h.dispatch, Log: h.log}
	h.Instances = &Instances{
		dispatch: h.dispatch, pages: h.pages, clients: h.clients, streams: h.streams, insight: h.insight, left: left, settings: h.Settings, log: h.log,
	}
	h.classes = classes.NewClasses(h.inventory, h.fleet, h.dispatch, h.store, h.roster.Looked(), h.Settings, func() time.Time { return h.since })
	h.callbacks = submit.NewCallbacks(h.queue, h.Settings, func(reason string) string { return h.insight.WithoutAddresses(view.Viewer{Login: true})(reason) }, h.log)
	h.submitter = &submit.Submitter{
		Queue: h.queue, Put: h.queue.Enqueue, Classes: h.classes, Dispatch: h.dispatch, Streams: h.streams, Store: h.store, Held: h.held, LimitsOf: h.tenants.Limits, RulesOf: h.tenants.Rules,
		Door:     func(key string) submit.Door { return h.dispatch.Doors.Open(key) },
		Patience: func() time.Duration { return h.Settings().AskPatience }, Log: h.log, Refused: h.recorder.Refused, Traces: h.tracing.Tracer,
		MaxUpload: func() int64 { return h.Settings().MaxUpload }, Fetcher: submit.NewFetcher(h.store, h.Settings), Callbacks: h.callbacks,
	}
	h.board = view.NewBoard(h.insight, h.dispatch, h.fleet, h.queue, h.recorder.Faults, h.log)
	h.canceller = &submit.Canceller{Queue: h.queue, Dispatch: h.dispatch, Streams: h.streams, Steered: h.board.Touch}
	h.openScaler()
	h.openViews()
	h.staticInstances = newStaticInstances(h)
	if h.gossip, err = h.openGossip(ctx, self, known); err != nil {
		return err
	}
	near.known.Store(h.gossip)
	tokens := machines.New(h.db, h.ring)
	h.tunnels = &Tunnels{machines: tokens, fleet: h.fleet, take: h.gossip.admission.admit, log: h.log, open: map[string]*machineTunnel{}}
	h.workers = newWorkers(h, library)
	h.operator.pages, h.operator.known = h.pages, h.known
	h.operator.stops, h.operator.ring, h.operator.authority = h.stops, h.ring, h.authority
	h.operator.admission, h.operator.machines = h.gossip.admission, tokens
	h.operator.insight, h.operator.canceller, h.operator.keys, h.operator.bond, h.operator.store = h.insight, h.canceller, h.keys, h.bond, h.store
	h.janitor = &retention.Janitor{
		DB: h.db, Queue: h.queue, Store: h.store, Full: h.storageIsFull, Bond: h.bond, Held: h.held, Ring: h.ring, Keys: h.keys, Logins: &h.logins, Self: self, Settings: h.Settings, Log: h.log,
		Pinned: &retention.PinnedBlobs{Turn: semaphore.NewWeighted(1), Live: h.queue.LiveKeys, Each: h.queue.EachBody},
	}
	h.openWebUI()
	opening, stop := context.WithCancel(context.Background())
	h.stopOpening = stop
	h.opening.enter = func() { h.enter(opening) }
	if err := h.opening.begin(opening, h.maintenance.Go); err != nil {
		return err
	}
	h.opened = true
	return nil
}

// Collectors returns the hub's metrics. They are made once and live as long as the hub, so that
// counters continue through reloads.
func (h *Hub) Collectors() []prometheus.Collector { return append(h.measure.Collectors(), h.live) }

// Settings returns the current settings. They must not be changed.
func (h *Hub) Settings() *config.Settings { return h.config.Load() }

// Release returns the version of the hub.
func (h *Hub) Release() string { return config.Version }

func (h *Hub) log() *slog.Logger { return h.Settings().Logger }
