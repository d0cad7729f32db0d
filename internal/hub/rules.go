package hub

import (
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/rules"
)

// Rules say what may run.
type Rules = rules.Rules

// RuleBounds are the words of Rules.Max.
func RuleBounds() []string { return rules.Bounds() }

// rulesOf are the rules for a tenant: its own, or those for all others.
func (h *Hub) rulesOf(tenant string) Rules {
	s := h.Settings()
	if own, ok := s.RulesOf[tenant]; ok {
		return own
	}
	return s.Rules
}

// maxObjections bounds the faults of one answer.
const maxObjections = 100

func objectionsTo(faults []rules.Fault) []catalog.Objection {
	faults = faults[:min(len(faults), maxObjections)]
	list := make([]catalog.Objection, len(faults))
	for n, f := range faults {
		list[n] = catalog.Objection{Node: f.Node, Input: f.Input, Reason: f.Reason}
	}
	return list
}
