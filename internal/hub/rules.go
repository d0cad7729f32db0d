package hub

import "github.com/comfyhub/comfyhub/internal/rules"

// Rules say what may run.
type Rules = rules.Rules

// RuleBounds returns the words of Rules.Max.
func RuleBounds() []string { return rules.Bounds() }

// rulesOf returns the rules for a tenant: its own, or those for everybody else.
func (h *Hub) rulesOf(tenant string) Rules {
	s := h.Settings()
	if own, ok := s.RulesOf[tenant]; ok {
		return own
	}
	return s.Rules
}

// maxObjections bounds the objections in one answer.
const maxObjections = 100
