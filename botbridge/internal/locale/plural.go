package locale

import (
	"fmt"
	"regexp"
	"strconv"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
)

// choice is a word that depends on a number: its forms in the order zero, one, two,
// few, many, other. A language names only those that it has: English two, one and
// other; Russian three, one, few and many.
var choice = regexp.MustCompile(`\{(\w+):([^{}]*)\}`)

// choose returns the form for a number.
func choose(code string, n any, forms []string) string {
	number, err := strconv.Atoi(fmt.Sprint(n))
	tag, parseErr := language.Parse(code)
	if err != nil || parseErr != nil {
		return forms[len(forms)-1]
	}
	form := plural.Cardinal.MatchPlural(tag, number, 0, 0, 0, 0)
	at := len(forms) - 1
	switch {
	case len(forms) == 6:
		at = map[plural.Form]int{plural.Zero: 0, plural.One: 1, plural.Two: 2, plural.Few: 3, plural.Many: 4, plural.Other: 5}[form]
	case form == plural.One:
		at = 0
	case form == plural.Few && len(forms) > 2:
		at = 1
	}
	return forms[at]
}
