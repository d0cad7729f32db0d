package caddymodule

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// errUnknownWord is returned by a setter for an unknown word.
var errUnknownWord = errors.New("unknown word")

// words are those that a block has used.
type words []string

// again reports whether a word was used before, and records it.
func (w *words) again(word string) bool {
	if slices.Contains(*w, word) {
		return true
	}
	*w = append(*w, word)
	return false
}

// setWord parses the line of a word that takes exactly one argument and no block,
// and passes both to set. Errors contain file and line.
func setWord(d *caddyfile.Dispenser, set func(word, value string) error) error {
	word, nesting := d.Val(), d.Nesting()
	args := d.RemainingArgs()
	// An unknown word is reported before a wrong number of arguments, so that a
	// typo is reported as such.
	value := ""
	if len(args) > 0 {
		value = args[0]
	}
	err := set(word, value)
	switch {
	case errors.Is(err, errUnknownWord):
		return d.Errf("unrecognized subdirective %q", word)
	case len(args) != 1:
		return d.Errf("%s takes one argument, not %d", word, len(args))
	case err != nil:
		return d.Errf("%s: %w", word, err)
	case d.NextBlock(nesting):
		return d.Errf("%s takes no block", word)
	}
	return nil
}

// oneOf accepts a value out of a short list.
func oneOf(value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return fmt.Errorf("%q is not one of %s", value, strings.Join(choices, ", "))
}

// setBlock parses a block of words that take one argument each. If the block is
// empty or absent, it fails with the text of missing.
func setBlock(d *caddyfile.Dispenser, set func(word, value string) error, missing string) error {
	var seen words
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if seen.again(d.Val()) {
			return d.Errf("%s is given twice", d.Val())
		}
		if err := setWord(d, set); err != nil {
			return err
		}
	}
	if len(seen) == 0 {
		return d.Err(missing)
	}
	return nil
}
