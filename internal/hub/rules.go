package hub

import (
	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/rules"
)

// Rules say what may run.
type Rules = rules.Rules

// RuleBounds are the words of Rules.Max.
func RuleBounds() []string { return rules.Bounds() }

// judge is what speaks against a tenant's graph: what its rules forbid, and what no client may
// send to a server of A1111's API.
func (h *Hub) judge(tenant string, graph pyjson.Value) []catalog.Objection {
	s := h.Settings()
	own := s.RulesFor(tenant)
	if own.Empty() && !rules.Asks(graph) {
		return nil
	}
	return own.Judge(rules.Dialect{Open: s.A1111Allow, Names: h.classes.options}.Read(graph))
}

// RulesFor are the rules for a tenant: its own, or those for all others.
func (s Settings) RulesFor(tenant string) Rules {
	if own, ok := s.RulesOf[tenant]; ok {
		return own
	}
	return s.Rules
}

// KeepsOption reports whether a tenant may set an option of A1111's servers for its own jobs.
func (s Settings) KeepsOption(name string) bool {
	return a1111.MeaningOfSetting(name) != a1111.Closed || rules.Opens(s.A1111Allow, name)
}

// maxObjections bounds those of one answer.
const maxObjections = 100
