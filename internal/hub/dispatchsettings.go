package hub

import "github.com/comfyhub/comfyhub/internal/dispatch"

// dispatchSettings returns those of the current settings that are about runs.
func (h *Hub) dispatchSettings() dispatch.Settings {
	s := h.Settings()
	return dispatch.Settings{
		StallTimeout: s.StallTimeout, ContactTimeout: s.ContactTimeout, JobTimeout: s.JobTimeout,
		UnrunnableTimeout: s.UnrunnableTimeout, CatalogAge: s.CatalogAge, Lease: leaseTime,
		Overtaking: s.Overtaking, ShortFirst: s.ShortFirst, PreemptBulk: s.PreemptBulk, Ahead: s.Lookahead > 0, Split: !s.NoSplit, Reserved: s.Reserved, SecretsTo: s.SecretsTo, GPUs: s.GPUs,
	}
}
