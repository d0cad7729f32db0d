package caddymodule

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/comfyhub/comfyhub/internal/rules"
)

// RuleSet says what some tenants may run. A pattern may contain `*` for any text.
type RuleSet struct {
	// The tenants that it is for, in place of the rules for all. Default: all others.
	Tenants []string `json:"tenants,omitempty"`

	// Node classes that may not be in a prompt. Default: none.
	DenyClassTypes []string `json:"deny_class_types,omitempty"`

	// The only node classes that may be in a prompt. Default: all.
	AllowClassTypes []string `json:"allow_class_types,omitempty"`

	// Files of models that a prompt may not name, by path or name; the case of letters does
	// not matter. Default: none.
	DenyModels []string `json:"deny_models,omitempty"`

	// The only files of models that a prompt may name. Default: all.
	AllowModels []string `json:"allow_models,omitempty"`

	// Largest values of inputs: of `width`, `height`, `steps`, `batch` or `length`. Default: no
	// limits.
	Max map[string]int `json:"max,omitempty"`
}

// RuleSets are those for all and for single tenants.
type RuleSets []*RuleSet

// UnmarshalCaddyfile parses a block "rules": for those tenants that it names, or for all others.
func (rs *RuleSets) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	set := &RuleSet{Tenants: d.RemainingArgs()}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := set.line(d); err != nil {
			return err
		}
		if d.NextBlock(d.Nesting() + 1) {
			return d.Err("rules takes no blocks within its own")
		}
	}
	*rs = append(*rs, set)
	if err := checkRules(*rs); err != nil {
		return d.Errf("rules: %w", err)
	}
	return nil
}

// line parses a line of the block.
func (s *RuleSet) line(d *caddyfile.Dispenser) error {
	word := d.Val()
	if word != "deny" && word != "allow" && word != "max" {
		return unknownWord(d, "deny", "allow", "max")
	}
	args := d.RemainingArgs()
	switch {
	case len(args) < 2 || word == "max" && len(args) != 2:
		return d.Errf("%s: want what it is about, and then values", word)
	case word == "max":
		n, err := parseCount(args[1])
		if err != nil {
			return d.Errf("max %s: %w", args[0], err)
		}
		if _, twice := s.Max[args[0]]; twice {
			return d.Errf("max %s is given twice", args[0])
		}
		if s.Max == nil {
			s.Max = map[string]int{}
		}
		s.Max[args[0]] = n
		return nil
	}
	list := map[string]*[]string{
		"deny class_type": &s.DenyClassTypes, "allow class_type": &s.AllowClassTypes, "deny model": &s.DenyModels, "allow model": &s.AllowModels,
	}[word+" "+args[0]]
	if list == nil {
		return d.Errf("%s: %q is not one of class_type, model", word, args[0])
	}
	*list = append(*list, args[1:]...)
	return nil
}

// rules are the hub's.
func (s *RuleSet) rules() rules.Rules {
	r := rules.Rules{DenyClasses: s.DenyClassTypes, AllowClasses: s.AllowClassTypes, DenyModels: s.DenyModels, AllowModels: s.AllowModels}
	for word, most := range s.Max {
		if r.Max == nil {
			r.Max = map[string]float64{}
		}
		r.Max[word] = float64(most)
	}
	return r
}

// checkRules validates rules that may come from JSON.
func checkRules(sets []*RuleSet) error {
	seen := map[string]bool{}
	for _, s := range sets {
		if s == nil {
			return errors.New("a set of rules is null")
		}
		if s.rules().Empty() {
			return errors.New("nothing is denied, allowed or bounded")
		}
		names := s.Tenants
		if len(names) == 0 {
			names = []string{""}
		} else if slices.Contains(names, "") {
			return errors.New("a tenant has no name")
		}
		for _, name := range names {
			if seen[name] {
				return fmt.Errorf("rules %s are given twice", orDefault(name, "for all"))
			}
			seen[name] = true
		}
		if slices.Contains(slices.Concat(s.DenyClassTypes, s.AllowClassTypes, s.DenyModels, s.AllowModels), "") {
			return errors.New("a pattern is empty")
		}
		for _, word := range slices.Sorted(maps.Keys(s.Max)) {
			if err := oneOf(word, rules.Bounds()...); err != nil {
				return fmt.Errorf("max: %w", err)
			}
			if s.Max[word] < 1 {
				return fmt.Errorf("max %s: must be above 0", word)
			}
		}
	}
	return nil
}

func rulesForAll(sets []*RuleSet) rules.Rules {
	for _, s := range sets {
		if s != nil && len(s.Tenants) == 0 { // a null is told of later
			return s.rules()
		}
	}
	return rules.Rules{}
}

func rulesOf(sets []*RuleSet) map[string]rules.Rules {
	own := map[string]rules.Rules{}
	for _, s := range sets {
		if s == nil {
			continue
		}
		for _, tenant := range s.Tenants {
			own[tenant] = s.rules()
		}
	}
	return own
}
