package caddymodule

import (
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/comfyhub/comfyhub/internal/nearest"
)

// unknownWord is the error for the word at which a block is, and which it does not know: it says in
// which block the word belongs, or which one may be meant.
func unknownWord(d *caddyfile.Dispenser, known ...string) error {
	name := d.Val()
	if homes := homesOf(name); len(homes) > 0 {
		return d.Errf("unrecognized subdirective %q: it belongs in %s", name, strings.Join(homes, ", or in "))
	}
	if like := nearest.Of(name, known); like != "" {
		return d.Errf("unrecognized subdirective %q: did you mean %s?", name, like)
	}
	return d.Errf("unrecognized subdirective %q", name)
}

// homesOf are the blocks that know a word.
func homesOf(name string) (homes []string) {
	for _, block := range []struct {
		home   string
		config any
		within string
		own    []string
	}{
		{"the global option comfyhub", new(App), "", nil},
		{"comfyhub in a site", new(Handler), "", nil},
		{"gossip { ... }", new(Gossip), "", nil},
		{"history { ... }", new(App), "history { ", []string{"entries"}},
		{"tenant_limits { ... }", new(TenantLimits), "", nil},
		{"callbacks { ... }", new(Callbacks), "", nil},
		{"scale { ... }", new(Scale), "", nil},
		{"overflow { ... }", new(Overflow), "", nil},
		{"rules { ... }", new(struct{}), "", []string{"deny", "allow"}},
		{"instance { ... }", new(struct{}), "", []string{"gpu"}},
	} {
		if slices.Contains(append(wordNames(block.config, block.within), block.own...), name) {
			homes = append(homes, block.home)
		}
	}
	return homes
}

// wordNames are the words of a configuration, given as a pointer; within is the start of the names of a
// block that has no type of its own.
func wordNames(config any, within string) (names []string) {
	for w := range wordsOf(config) {
		if name, inside := strings.CutPrefix(w.name, within); inside && !strings.Contains(name, " ") {
			names = append(names, name)
		}
	}
	return names
}

// known are the words of a block.
func known(config any, within string, own ownLines) []string {
	return append(wordNames(config, within), slices.Sorted(maps.Keys(own))...)
}
