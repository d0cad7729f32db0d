// Package config is what an operator has configured about a hub: its identity, which a reload does not
// change, and its settings.
package config

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/rules"
	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// ErrNotStarted is the readiness error of a hub before its first Start.
var ErrNotStarted = errors.New("hub: not started")

// Identity is what makes two configurations the same hub: while it is unchanged, a reload keeps the
// queue client, the membership, the sockets and the counters, and replaces only Settings.
type Identity struct {
	// Redis is "embedded", or a redis://, rediss://, sentinel or cluster URL.
	Redis string
	// RedisReplicas is how many replicas must have a prompt before it counts as accepted.
	// Default: 0. The embedded queue has none.
	RedisReplicas int
	// Data is the folder for files, the embedded queue and the hub's own id.
	Data string
	// Storage is where inputs, outputs, settings and user files are: a folder,
	// file:///folder, or s3://bucket for an object store. Several hubs on one
	// Redis must share it. Default: the folder "files" in Data.
	Storage string
	// GossipBind is the host:port for memberlist, or NoGossip.
	GossipBind string
	// GossipAdvertise is the host:port that agents are told; empty means
	// GossipBind.
	GossipAdvertise string
	// GossipKey encrypts gossip and authenticates agents; while it is being changed there may be
	// several, one per line, see gossip.Keys. It may be empty only if GossipBind is a loopback
	// address.
	GossipKey string
	// Network leads to instances, to a redis:// URL and to the gossip if that takes something other
	// than TCP and UDP: a simulated network. Default: TCP and UDP.
	Network *Network
}

// Network is a way to other machines.
type Network struct {
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Gossip carries the gossip of one hub, unless there is none.
	Gossip gossip.Transport
	// Storage stands between the hub and its storage. Default: nothing does.
	Storage files.Gate
}

// Dial returns how to connect over the network, nil for TCP.
func (id Identity) Dial() func(ctx context.Context, network, address string) (net.Conn, error) {
	if id.Network == nil {
		return nil
	}
	return id.Network.Dial
}

// Gossip returns what carries the gossip, nil for UDP and TCP.
func (id Identity) Gossip() gossip.Transport {
	if id.Network == nil {
		return nil
	}
	return id.Network.Gossip
}

// NoGossip as Identity.GossipBind leaves out the gossip: all instances come from
// Settings.Instances, and other hubs are known only through Redis.
const NoGossip = "off"

// NoOvertaking means that no job overtakes another because its models are loaded, or because it
// takes less time.
const NoOvertaking time.Duration = -1

// Settings are what a reload may change. The zero value of each field means its default.
type Settings struct {
	// Doubts are what the configuration allows although its operator may not have meant to.
	Doubts []Finding
	// Open says that machines other than the hub's own can reach it without being asked for a login
	// or a key.
	Open bool
	// OperatorsAt is where the site for operators is, such as "http://127.0.0.1:8187"; without a
	// host ("http://:8187") it is at all of the hub's addresses. Empty if there is none.
	OperatorsAt string
	// Instances are the URLs of stock ComfyUI servers without an agent beside them.
	Instances []string
	// A1111 are the URLs of servers of A1111's API without an agent beside them.
	A1111 []string
	// Reserved are instances that only some tenants may use. Default: everybody may use all of
	// them.
	Reserved []schedule.Reservation
	// SecretsTo are the names of agents, and of instances without one, that get the API keys of
	// prompts; each * in a name stands for any text. Default: all except those admitted with a
	// machine's token.
	SecretsTo []string
	// APIOnly are the names of instances that take only prompts whose work a paid service does; each *
	// in a name stands for any text. Such prompts go to others only if none of these can run them.
	APIOnly []string
	// GPUs name the GPUs of instances without an agent, by the instances' names. Instances with the
	// same name share its memory. Default: each has its own.
	GPUs map[string]string
	// Scale are the classes of machines that come and go by need, MaxScaleClasses at most. Default:
	// none.
	Scale []scale.Class
	// Overflow are the serverless endpoints to which jobs go for which the fleet has no time,
	// MaxOverflows at most. Default: none.
	Overflow []Overflow
	// Join are gossip addresses of other hubs, host:port.
	Join []string
	// AgentsFrom are the networks and addresses in which agents are believed to be where they say.
	// Default: where connections to the gossip have come from.
	AgentsFrom []string
	// AllowDirect are networks, addresses and host names where agents may say an instance is, other
	// than their own or over plain HTTP. Default: none.
	AllowDirect []string
	// MaxAttempts is how many runs of one job may be lost before it fails.
	// Default: 3.
	MaxAttempts int
	// StallTimeout is how long an instance may be silent in the middle of a run before the hub asks
	// it what it is doing. Default: 5 minutes.
	StallTimeout time.Duration
	// ContactTimeout is how long an instance may show no sign of life in the middle of a run before
	// its job runs elsewhere. Default: 15 seconds.
	ContactTimeout time.Duration
	// AskPatience is how long POST /prompt waits for each idle instance that is asked to take or
	// refuse a prompt that only an instance can judge; ten times as long for all of them. Default:
	// 100 ms.
	AskPatience time.Duration
	// MaxQueue bounds the waiting jobs; further prompts get 429.
	// Default: 10000.
	MaxQueue int
	// FIFO makes jobs run in order of arrival, whoever posted them. Default: tenants, and the
	// callers of each, take turns.
	FIFO bool
	// Overtaking is how long a waiting job may be overtaken by jobs of other
	// callers whose models an instance has loaded. Default: 10 seconds; NoOvertaking
	// with FIFO.
	Overtaking time.Duration
	// ShortFirst lets short jobs go before long ones of other callers. A job is overtaken in this
	// way for no longer than it will take itself, and for no longer than ShortFirst; by those of
	// other tenants for no longer than Overtaking. Default: 2 minutes; NoOvertaking with FIFO.
	ShortFirst time.Duration
	// PreemptBulk lets a young bulk run be interrupted for an interactive job that would
	// wait longer than this. Default: never.
	PreemptBulk time.Duration
	// TenantWeights are the tenants' shares in the time of the instances, from 0.001 to 1000.
	// Default: 1 for each that is not named.
	TenantWeights map[string]float64
	// NoSplit makes each batch on one instance. Default: idle instances make parts of it.
	NoSplit bool
	// Lookahead is how many jobs an instance gets ahead while it is running one: 0 or 1. Default:
	// 0.
	Lookahead int
	// MaxQueueSize bounds the bytes of the waiting jobs as Redis keeps them,
	// compressed; further prompts get 429. Default: 1 GiB.
	MaxQueueSize int64
	// MaxBody bounds the body of POST /prompt, in bytes. Default: 100 MiB, as
	// in ComfyUI.
	MaxBody int64
	// BodyMemory bounds the memory that reading requests' bodies may take at one moment, in bytes;
	// requests wait for it, then get 503. Default: 512 MiB.
	BodyMemory int64
	// SpoolSize bounds how much is on the local disk while it arrives or is being made: uploads,
	// large bodies, pictures; in bytes, half of it for one tenant. Some of the disk stays free in
	// any case. Default: 16 times BodyMemory, and enough for four uploads.
	SpoolSize int64
	// MaxUpload bounds the body of an upload, in bytes. Default: 100 MiB.
	MaxUpload int64
	// InputsFrom are the hosts from which inputs are fetched whose value in a prompt is an https
	// URL. Default: none; such a value is refused as by ComfyUI.
	InputsFrom egress.Hosts
	// CallbackHosts are the hosts that callbacks of jobs may name. Default: none; a job with a
	// callback is refused.
	CallbackHosts egress.Hosts
	// CallbackSecrets sign callbacks, each tenant's with a secret derived from them; they have at
	// least keyring.MinSecret bytes each. The first is the one that users are told. Without any there are
	// no callbacks.
	CallbackSecrets []string
	// PictureMemory bounds how much memory the previews and masks being made at one time take, in
	// bytes. Default: 768 MiB.
	PictureMemory int64
	// UnrunnableTimeout is how long a job waits for an instance that could
	// run it before it fails. Default: 1 hour.
	UnrunnableTimeout time.Duration
	// CatalogAge is how old the hub's knowledge of the instances' classes and models may be when a
	// client reads /object_info; beyond that the instances are asked again. Default: 2 seconds.
	CatalogAge time.Duration
	// JobTimeout bounds one run; the run is interrupted and the job fails.
	// Default: 0, no bound.
	JobTimeout time.Duration
	// ReplayWindow is how long a client may be away and still be sent what it
	// missed. Default: 60 seconds.
	ReplayWindow time.Duration
	// HistoryEntries bounds /history. Default: 10000, as in ComfyUI.
	HistoryEntries int
	// HistoryAge is how long an ended job is kept, with the files that no younger one names.
	// Default: 0, no bound.
	HistoryAge time.Duration
	// HistorySize bounds the bytes of the files that jobs have made; the
	// oldest jobs go, with their files. Default: 0, no bound.
	HistorySize int64
	// InputAge is how long an uploaded file is kept that no job uses.
	// Default: 0, no bound.
	InputAge time.Duration
	// MaxSockets bounds the open client sockets. Default: 10000.
	MaxSockets int
	// TenantLimits bound how much one tenant may take of what everybody shares.
	TenantLimits TenantLimits
	// TenantLimitsOf are the limits of single tenants; zero fields are as for everybody. History
	// and HistorySize are the same for all tenants.
	TenantLimitsOf map[string]TenantLimits
	// Rules say what tenants may run, and RulesOf what single tenants may run, instead of Rules.
	// Default: everything.
	Rules   rules.Rules
	RulesOf map[string]rules.Rules
	// Operators are the tenants that see everything and may use an operator's commands. Default:
	// none.
	Operators []string
	// Manager lets through calls that install or change code on instances. Default: they are 403.
	Manager bool
	// Passthrough says which requests that are not routes of the hub reach an instance. Default:
	// PassthroughRead for those who have logged in, PassthroughOn where nobody does.
	Passthrough PassthroughPolicy
	// PlainAPI says where the plain job API is. Default: PlainAPIRoot.
	PlainAPI PlainAPI
	// NoQueuePanel leaves the hub's panel out of ComfyUI's page. Default: it is there.
	NoQueuePanel bool
	// NoA1111API leaves out the routes for clients of A1111's API. Servers of that API may be in
	// the fleet all the same. Default: the routes are there.
	NoA1111API bool
	// MultiUser keeps settings and user files apart by the header Comfy-User, as ComfyUI does with
	// --multi-user. Default: each tenant is one user.
	MultiUser bool
	// Free says whose models POST /free unloads. Default: FreeOwn.
	Free FreePolicy
	// Frontend is a folder with the static files of ComfyUI's web UI; empty
	// means that they come from an instance.
	Frontend string
	// Primary are the instances or agents that the web UI's page and the scripts of extensions come
	// from: the first one that is there. Default: the static instances in order, else the agent
	// that has had its name for longest.
	Primary []string
	// Secrets are the operator's, of at least keyring.MinSecret bytes each: the hubs' own keys are in the
	// storage encrypted under the first, and each may open them. Default: none; they are stored as
	// they are.
	Secrets []string
	// Tracing makes OpenTelemetry spans of the life of jobs whose prompts are posted in requests
	// with a sampled span, exported as the OTEL_* environment says. Default: none.
	Tracing bool
	// Logger takes all log lines; prompts and secrets never appear in them.
	Logger *slog.Logger
	// Audit takes the lines that say who did what. Default: none.
	Audit *slog.Logger
}

// PassthroughPolicy says which requests that are not routes of the hub may reach an instance: calls
// of custom nodes, whose answers no hub can judge.
type PassthroughPolicy string

const (
	// PassthroughOff lets only files of the web interface and its extensions
	// through.
	PassthroughOff PassthroughPolicy = "off"
	// PassthroughRead lets GET and HEAD through, but no WebSockets.
	PassthroughRead PassthroughPolicy = "read"
	// PassthroughOn lets everything through.
	PassthroughOn PassthroughPolicy = "on"
)

// PassthroughOf returns the policy for a caller. Where nobody logs in, everybody is one tenant and
// may do what they could with a server of their own.
func (s *Settings) PassthroughOf(login bool) PassthroughPolicy {
	switch {
	case s.Passthrough != "":
		return s.Passthrough
	case login:
		return PassthroughRead
	}
	return PassthroughOn
}

// PlainAPI says where the plain job API is.
type PlainAPI string

const (
	// PlainAPIRoot has it below /hub/v1 and, under short names, at the root.
	PlainAPIRoot PlainAPI = "root"
	// PlainAPIV1 has it below /hub/v1 only.
	PlainAPIV1 PlainAPI = "v1"
	// PlainAPIOff has it nowhere.
	PlainAPIOff PlainAPI = "off"
)

// FreePolicy says whose models POST /free unloads.
type FreePolicy string

const (
	// FreeOwn unloads those of instances whose last job was the caller's: nobody else loses
	// anything.
	FreeOwn FreePolicy = "own"
	// FreeAll unloads those of all instances, whoever asks.
	FreeAll FreePolicy = "all"
	// FreeOff answers 200 and does nothing.
	FreeOff FreePolicy = "off"
)

// WithDefaults fills in zero fields.
func (s Settings) WithDefaults() Settings {
	fill(&s.MaxAttempts, 3)
	fill(&s.StallTimeout, 5*time.Minute)
	fill(&s.ContactTimeout, 15*time.Second)
	fill(&s.CatalogAge, 2*time.Second)
	fill(&s.AskPatience, 100*time.Millisecond)
	fill(&s.MaxQueue, 10_000)
	fill(&s.MaxQueueSize, 1<<30)
	fill(&s.MaxBody, 100<<20)
	fill(&s.BodyMemory, 512<<20)
	fill(&s.MaxUpload, 100<<20)
	fill(&s.SpoolSize, max(16*s.BodyMemory, 4*s.MaxUpload))
	fill(&s.PictureMemory, 768<<20)
	fill(&s.UnrunnableTimeout, time.Hour)
	fill(&s.ReplayWindow, time.Minute)
	fill(&s.Overtaking, 10*time.Second)
	fill(&s.ShortFirst, 2*time.Minute)
	if s.FIFO {
		s.Overtaking, s.ShortFirst = NoOvertaking, NoOvertaking
	}
	fill(&s.HistoryEntries, 10_000)
	fill(&s.MaxSockets, 10_000)
	fill(&s.Free, FreeOwn)
	fill(&s.PlainAPI, PlainAPIRoot)
	if s.Audit == nil {
		s.Audit = slog.New(slog.DiscardHandler)
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	return s
}

// WithReserved fills in which tenants instances are reserved for.
func (s *Settings) WithReserved(instances []fleet.Instance) []fleet.Instance {
	for n, i := range instances {
		instances[n].Reserved = schedule.Reservations(s.Reserved).For(i.Name)
	}
	return instances
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
