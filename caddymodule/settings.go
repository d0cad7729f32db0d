package caddymodule

import (
	"cmp"
	"time"

	"github.com/comfyhub/comfyhub/internal/config"
)

// hubIdentity returns the part of a resolved configuration that a reload cannot
// change.
func (a *App) hubIdentity() config.Identity {
	id := config.Identity{
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

// maxPrompt is the largest body of POST /prompt, in bytes, as in ComfyUI.
const maxPrompt = 100 << 20

// hubSettings returns the rest.
func (a *App) hubSettings() config.Settings {
	s := config.Settings{
		Reserved:       a.Reserve.named(),
		GPUs:           a.GPUs.named(),
		Scale:          a.Scale.classes(),
		Overflow:       a.Overflow.endpoints(),
		Secrets:        a.Secret,
		FIFO:           a.Order == orderFIFO,
		InputsFrom:     hostsOf(a.InputsFrom),
		HistoryEntries: a.History,
		TenantLimits:   a.TenantLimits.limits(),
		TenantLimitsOf: a.TenantLimitsOf.limits(),
		Rules:          rulesForAll(a.Rules),
		RulesOf:        rulesOf(a.Rules),
		NoA1111API:     a.A1111API == "off",
		NoSplit:        a.Split == "off",
		NoQueuePanel:   a.QueuePanel == "off",
	}
	settle(&s, a)
	s.TenantWeights = a.TenantLimitsOf.weights(a.TenantWeights)
	s.BodyMemory, s.PictureMemory = cmp.Or(a.BodyMemory, a.Memory*2/5), cmp.Or(a.PictureMemory, a.Memory*3/5)
	s.MaxBody = cmp.Or(a.MaxBody, min(a.MaxUpload, maxPrompt))
	s.SecretsTo = nil
	for _, name := range a.SecretsTo {
		s.SecretsTo = append(s.SecretsTo, instanceName(name))
	}
	s.APIOnly = nil
	for _, name := range a.APIOnly {
		s.APIOnly = append(s.APIOnly, instanceName(name))
	}
	if a.Overtaking != nil {
		s.Overtaking = cmp.Or(time.Duration(*a.Overtaking), config.NoOvertaking)
	}
	if a.ShortFirst != nil {
		s.ShortFirst = cmp.Or(time.Duration(*a.ShortFirst), config.NoOvertaking)
	}
	if a.Callbacks != nil {
		s.CallbackHosts, s.CallbackSecrets = hostsOf(a.Callbacks.Allow), a.Callbacks.Secret
	}
	if a.Gossip != nil {
		settle(&s, a.Gossip)
	}
	return s
}

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}
