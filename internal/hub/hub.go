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
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/lastknown"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/logs"
	"github.com/comfyhub/comfyhub/internal/machines"
	"github.com/comfyhub/comfyhub/internal/metrics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/roster"
	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/stats"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/tenants"
	"github.com/comfyhub/comfyhub/internal/userdata"
	"github.com/comfyhub/comfyhub/internal/webui"
)

// ErrNotStarted is the readiness error of a hub before its first Start.
var ErrNotStarted = errors.New("hub: not started")

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
	tracing tracing
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
	pages           *pageSource
	ring            *keyring.Ring
	authority       *gossip.Authority
	links           *links.Links
	tenants         *tenants.Tenants
	queue           *queue.Queue
	jobs            *Jobs
	insight         *Insight
	streams         *stream.Streams
	fleet           *fleet.Registry
	inventory       *inventory
	clients         *comfyui.Clients
	kept            *keptFiles
	dispatch        *dispatch.Dispatcher
	classes         *Classes
	logs            *Logs
	operator        *Operator
	gossip          *membership
	staticInstances *staticInstances
	tunnels         *Tunnels
	keys            *apikeys.Keys
	scaler          *scale.Scaler
	workers         *Workers
	overflow        *overflows

	submitter *Submitter
	canceller *Canceller
	ends      *Ends
	watches   *Watches
	callbacks *Callbacks
	stops     *stops
	janitor   *janitor
	recorder  *recorder
	board     *Board

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
	h := &Hub{id: id, fleet: fleet.NewRegistry(), clients: comfyui.NewClients(), inventory: newInventory()}
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
	if err := h.tracing.set(ctx, s.Tracing); err != nil {
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
	h.streams.SetLimits(stream.Limits{
		ReplayWindow: s.ReplayWindow, MaxSockets: s.MaxSockets,
		TenantSockets: func(tenant string) int { return h.tenants.Limits(tenant).Sockets },
	})
	h.intake.SetLimits(intake.Limits{Memory: s.BodyMemory, Disk: s.SpoolSize, Room: roomOn(h.disks[0])})
	h.queue.SetLimits(queue.Limits{
		FIFO: s.FIFO, Weight: h.tenants.Weight,
		MaxQueue: s.MaxQueue, MaxQueueBytes: s.MaxQueueSize, MaxAttempts: s.MaxAttempts,
		HistoryEntries: s.HistoryEntries, TenantHistory: s.TenantLimits.History,
		TenantQueue: func(tenant string) (int, int64) { return h.tenants.Limits(tenant).Queue() },
		TenantRate:  func(tenant string) int { return h.tenants.Limits(tenant).Rate },
		TenantRuns:  func(tenant string) (int, time.Duration) { return h.tenants.Limits(tenant).Runs() },
	})
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
	h.jobs = &Jobs{queue: h.queue}
	h.watches = newWatches(h.queue.GetAll, h.log)
	h.ends = &Ends{
		queue: h.queue, boot: boot, looking: semaphore.NewWeighted(1), since: func() time.Time { return h.since },
		window: func() time.Duration { return h.Settings().ReplayWindow }, log: h.log,
		confirmed: newConfirmations(h.queue.DeliveredEnds, h.log), old: map[stream.Key]int64{},
	}
	h.streams = stream.New(stream.Options{
		SpillDir:  filepath.Join(h.id.Data, "spool"),
		Features:  func() json.RawMessage { return h.Features() },
		Count:     h.queue.Count,
		Shares:    h.tenants.Shares,
		Budget:    h.budget,
		Delivered: h.ends.delivered,
		Transport: h.transport(boot),
		Arrived:   h.ends.arrived,
		Observe:   h.measure,
		Logger:    log,
	})
	h.ends.streams = h.streams // which call it
	h.logs = &Logs{readers: logs.NewReaders(h.streams), fleet: h.fleet, logins: &h.logins, log: h.log}
	h.recorder = &recorder{Metrics: h.measure, trends: stats.NewTrends(h.db), faults: stats.NewFaults(h.db), fleet: h.fleet, log: h.log}
	left := &leftPictures{}
	library := catalog.NewLibrary()
	h.overflow = newOverflows(h, library)
	h.roster = roster.New(roster.Options{DB: h.db, Storage: h.storage, Library: library, Logger: log})
	h.dispatch = dispatch.New(dispatch.Config{
		Queue: h.queue, Fleet: h.fleet, Streams: h.streams, Files: h.transfer, Paused: h.storage.Health().Err, Shown: left.note,
		Connected: h.clients, Connect: h.connect, Library: library, Roster: h.roster, Overflow: h.overflow, Learned: h.inventory.learned, Unfit: h.unfit, Logged: h.logs.pass,
		EndedElsewhere: h.ends.endedElsewhere,
		Hub:            boot, HubID: self, Gone: h.goneHubs(), Settings: h.dispatchSettings, Observe: h.recorder, Traces: h.tracing.tracer, Faulted: h.recorder.faulted, Logger: log,
	})
	h.stops = &stops{looking: semaphore.NewWeighted(1), queue: h.queue, fleet: h.fleet, dispatch: h.dispatch, log: h.log}
	h.insight = &Insight{queue: h.queue, fleet: h.fleet, dispatch: h.dispatch, streams: h.streams, logins: &h.logins, limitsOf: h.tenants.Limits, settings: h.Settings, stops: h.stops, pages: func() *pageSource { return h.pages }, bond: h.bond, searches: newSearches(), log: h.log}
	h.logs.insight, h.logs.dispatch = h.insight, h.dispatch
	h.Instances = &Instances{
		dispatch: h.dispatch, clients: h.clients, streams: h.streams, insight: h.insight, left: left, settings: h.Settings, log: h.log,
	}
	h.classes = &Classes{beginning: h.beginning(), inventory: h.inventory, dispatch: h.dispatch, store: h.store, age: func() time.Duration { return h.Settings().CatalogAge }}
	h.canceller = &Canceller{queue: h.queue, dispatch: h.dispatch, streams: h.streams}
	h.submitter = &Submitter{
		queue: h.queue, put: h.queue.Enqueue, classes: h.classes, dispatch: h.dispatch, streams: h.streams, store: h.store, held: h.held, limitsOf: h.tenants.Limits, rulesOf: h.tenants.Rules,
		door:     func(key string) door { return h.dispatch.Doors.Open(key) },
		patience: func() time.Duration { return h.Settings().AskPatience }, log: h.log, refused: h.recorder.refused, traces: h.tracing.tracer,
		maxUpload: func() int64 { return h.Settings().MaxUpload }, fetcher: newFetcher(h.store, h.Settings),
	}
	h.board = &Board{turn: semaphore.NewWeighted(1), insight: h.insight, dispatch: h.dispatch, fleet: h.fleet, queue: h.queue, recorder: h.recorder, log: h.log, views: map[sight]*boardView{}, pages: map[string]int{}}
	h.canceller.steered = h.board.Touch
	h.openScaler()
	h.openViews()
	h.openCallbacks()
	h.staticInstances = newStaticInstances(h)
	if h.gossip, err = h.openGossip(ctx, self); err != nil {
		return err
	}
	tokens := machines.New(h.db, h.ring)
	h.tunnels = &Tunnels{machines: tokens, fleet: h.fleet, take: h.gossip.admission.admit, log: h.log, open: map[string]*machineTunnel{}}
	h.workers = newWorkers(h, library)
	h.operator.stops, h.operator.ring, h.operator.authority = h.stops, h.ring, h.authority
	h.operator.admission, h.operator.machines = h.gossip.admission, tokens
	h.operator.insight, h.operator.canceller, h.operator.keys, h.operator.bond, h.operator.store = h.insight, h.canceller, h.keys, h.bond, h.store
	h.janitor = &janitor{
		db: h.db, queue: h.queue, store: h.store, full: h.storageIsFull, bond: h.bond, held: h.held, ring: h.ring, keys: h.keys, logins: &h.logins, self: self, settings: h.Settings, log: h.log,
		pinned: &pinnedBlobs{turn: semaphore.NewWeighted(1), live: h.queue.LiveKeys, each: h.queue.EachBody},
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

// Close ends sockets with a going-away frame, leaves the gossip and closes Redis. Runs go on at
// their instances and are adopted by the next hub.
func (h *Hub) Close(ctx context.Context) error {
	h.starting.Lock() // Held: as in Start
	defer h.starting.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	return h.shut(ctx)
}

// shut closes what is open, in reverse order.
func (h *Hub) shut(ctx context.Context) error {
	var errs []error
	h.entering.Lock()
	if h.stopOpening != nil {
		h.stopOpening()
	}
	served := h.started.Swap(false)
	h.entering.Unlock()
	if h.streams != nil {
		errs = append(errs, h.streams.Close(ctx))
	}
	if h.board != nil {
		h.board.close()
	}
	if h.staticInstances != nil {
		h.staticInstances.close()
	}
	if h.tunnels != nil {
		h.tunnels.close()
	}
	if h.workers != nil {
		h.workers.stop()
	}
	if h.gossip != nil {
		errs = append(errs, h.gossip.close())
	}
	if h.stopHouse != nil {
		h.stopHouse()
	}
	h.maintenance.Wait()
	if h.dispatch != nil {
		h.dispatch.Close()
	}
	h.overflow.shut()
	if h.workers != nil {
		h.workers.close()
	}
	h.tracing.close(ctx)
	if h.ends != nil {
		h.ends.confirmed.close(ctx)
	}
	if h.copies != nil {
		h.copies.Close()
		h.kept.close()
	}
	if served {
		if err := h.store.Leave(ctx, h.self); err != nil {
			h.log().Warn("the other hubs will take a while to see that this one left", "error", err)
		}
	}
	h.closeNotes()
	if h.storage != nil {
		errs = append(errs, h.storage.Close())
	}
	if h.db != nil {
		errs = append(errs, h.db.Close())
	}
	return errors.Join(errs...)
}

// Collectors returns the hub's metrics. They are made once and live as long as the hub, so that
// counters continue through reloads.
func (h *Hub) Collectors() []prometheus.Collector { return append(h.measure.Collectors(), h.live) }

// Settings returns the current settings. They must not be changed.
func (h *Hub) Settings() *config.Settings { return h.config.Load() }

// Version returns the version of ComfyUI that the whole fleet supports; not Known while nothing is
// connected.
func (h *Hub) Version() comfyui.Version { return h.dispatch.Instances.Version() }

// Release returns the version of the hub.
func (h *Hub) Release() string { return config.Version }

func (h *Hub) log() *slog.Logger { return h.Settings().Logger }
