package hub

import (
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// dispatchSettings returns those of the current settings that are about runs.
func (h *Hub) dispatchSettings() dispatch.Settings {
	s := h.Settings()
	var secretsElsewhere []string
	for _, o := range s.Overflow {
		for n := range o.Max {
			if o.Secrets {
				secretsElsewhere = append(secretsElsewhere, fleet.OverflowName(o.Name, n+1))
			}
		}
	}
	return dispatch.Settings{
		StallTimeout: s.StallTimeout, ContactTimeout: s.ContactTimeout, JobTimeout: s.JobTimeout,
		UnrunnableTimeout: s.UnrunnableTimeout, CatalogAge: s.CatalogAge, Lease: leaseTime,
		Overtaking: s.Overtaking, ShortFirst: s.ShortFirst, PreemptBulk: s.PreemptBulk, Ahead: s.Lookahead > 0, Split: !s.NoSplit, Reserved: s.Reserved, SecretsTo: s.SecretsTo, SecretsElsewhere: secretsElsewhere, GPUs: s.GPUs,
	}
}
