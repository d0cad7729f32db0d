package hub

import "github.com/comfyhub/comfyhub/internal/rules"

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

// maxObjections bounds those of one answer.
const maxObjections = 100
