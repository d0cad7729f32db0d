package caddymodule

import (
	"cmp"
	"time"

	"github.com/comfyhub/comfyhub/internal/hub"
)

// hubIdentity returns the part of a resolved configuration that a reload cannot
// change.
func (a *App) hubIdentity() hub.Identity {
	id := hub.Identity{
		Redis:         orDefault(a.Redis, "embedded"),
		RedisReplicas: a.RedisReplicas,
		Data:          orDefault(a.Data, "./data"),
		Storage:       a.Storage,
		GossipBind:    "127.0.0.1:7946",
	}
	if g := a.Gossip; g != nil {
		id.GossipBind = orDefault(g.Bind, id.GossipBind)
		id.GossipAdvertise = g.Advertise
		id.GossipKey = g.Key
	}
	return id
}

// hubSettings returns the rest.
func (a *App) hubSettings() hub.Settings {
	s := hub.Settings{
		Instances:         a.Instances,
		A1111:             a.A1111,
		Reserved:          a.Reserve.named(),
		GPUs:              a.GPUs.named(),
		Secrets:           a.Secret,
		MaxAttempts:       a.MaxAttempts,
		StallTimeout:      time.Duration(a.StallTimeout),
		ContactTimeout:    time.Duration(a.ContactTimeout),
		MaxQueue:          a.MaxQueue,
		MaxQueueSize:      a.MaxQueueSize,
		FIFO:              a.Order == orderFIFO,
		TenantWeights:     a.TenantWeights,
		Lookahead:         a.Lookahead,
		MaxBody:           a.MaxBody,
		BodyMemory:        a.BodyMemory,
		SpoolSize:         a.SpoolSize,
		MaxUpload:         a.MaxUpload,
		InputsFrom:        hostsOf(a.InputsFrom),
		PictureMemory:     a.PictureMemory,
		MaxSockets:        a.MaxSockets,
		UnrunnableTimeout: time.Duration(a.UnrunnableTimeout),
		CatalogAge:        time.Duration(a.CatalogAge),
		JobTimeout:        time.Duration(a.JobTimeout),
		ReplayWindow:      time.Duration(a.ReplayWindow),
		HistoryEntries:    a.History,
		HistoryAge:        time.Duration(a.HistoryAge),
		HistorySize:       a.HistorySize,
		InputAge:          time.Duration(a.InputAge),
		PreemptBulk:       time.Duration(a.PreemptBulk),
		TenantLimits:      a.TenantLimits.limits(),
		TenantLimitsOf:    a.TenantLimitsOf.limits(),
		Rules:             rulesForAll(a.Rules),
		RulesOf:           rulesOf(a.Rules),
		Operators:         a.Operators,
		Manager:           a.Manager,
		Passthrough:       hub.PassthroughPolicy(a.Passthrough),
		PlainAPI:          hub.PlainAPI(a.PlainAPI),
		NoA1111API:        a.A1111API == "off",
		Frontend:          a.Frontend,
		Primary:           a.Primary,
		MultiUser:         a.MultiUser,
		Free:              hub.FreePolicy(a.Free),
		Tracing:           a.Tracing,
	}
	for _, name := range a.SecretsTo {
		s.SecretsTo = append(s.SecretsTo, instanceName(name))
	}
	if a.Overtaking != nil {
		s.Overtaking = cmp.Or(time.Duration(*a.Overtaking), hub.NoOvertaking)
	}
	if a.ShortFirst != nil {
		s.ShortFirst = cmp.Or(time.Duration(*a.ShortFirst), hub.NoOvertaking)
	}
	if a.Callbacks != nil {
		s.CallbackHosts, s.CallbackSecrets = hostsOf(a.Callbacks.Allow), a.Callbacks.Secret
	}
	if a.Gossip != nil {
		s.Join = a.Gossip.Join
		s.AllowDirect, s.AgentsFrom = a.Gossip.AllowDirect, a.Gossip.AgentsFrom
	}
	return s
}

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}
