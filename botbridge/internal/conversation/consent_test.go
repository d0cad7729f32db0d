package conversation

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// terms makes the rig ask for terms.
func (r *rig) terms(version string) {
	r.with(func(o *Options) {
		o.Terms = &Terms{Texts: map[string]string{"en": "Be kind " + version + ".", "ru": "Будьте людьми."}, Version: version}
	})
	r.restart()
}

// waiting is the id under which the last event waits.
func (r *rig) waiting(version string) string {
	return termsID(platform.Event{Platform: "telegram", ID: strconv.Itoa(r.last)}, version)
}

// The request that somebody wrote goes on once they have accepted, and later ones are not
// asked about.
func TestTermsFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	r.terms("1")
	r.event("5", "5", platform.Said, "m1", "/generate a fox --steps 7")
	id := r.waiting("1")
	require.Empty(t, r.prompts("5"))
	require.Len(t, r.p.in("5"), 1)
	require.Contains(t, r.p.in("5")[0], "Be kind 1.\n\nBefore I make your first picture")
	r.restart()
	r.press("6", "5", verbAccept, id)
	r.press("5", "99", verbAccept, id)
	r.press("5", "5", verbAccept, request.IDOf("another"))
	require.Empty(t, r.prompts("5"))
	for range 3 {
		r.press("5", "5", verbAccept, id)
		require.Equal(t, []string{"a fox"}, r.prompts("5"))
	}
	r.event("5", "5", platform.Said, "m2", "a bear")
	require.Equal(t, []string{"a fox", "a bear"}, r.prompts("5"))
	r.event("6", "6", platform.Said, "m3", "a wolf")
	require.Empty(t, r.prompts("6"), "everybody accepts for themselves")
}

// Other terms are asked about again; a button of the former ones accepts nothing.
func TestTermsChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	r.terms("1")
	r.event("5", "5", platform.Said, "m1", "a fox")
	first, event := r.waiting("1"), r.last
	r.terms("2")
	r.press("5", "5", verbAccept, first)
	require.Empty(t, r.prompts("5"))
	require.Contains(t, r.p.in("5")[1], "Be kind 2.")
	second := termsID(platform.Event{Platform: "telegram", ID: strconv.Itoa(event)}, "2")
	r.press("5", "5", verbAccept, second)
	require.Equal(t, []string{"a fox"}, r.prompts("5"))
}

// No way to a picture goes round the terms, and help does not need them.
func TestTermsOfEveryWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	id := r.made("generate", "5", "5")
	r.terms("1")
	fake := r.words(Enhance{})
	for _, verb := range []string{request.VerbAgain, request.VerbVary, "v1"} {
		r.press("5", "5", verb, id)
	}
	r.event("5", "5", platform.Said, "m1", "/enhance a fox")
	r.event("5", "5", platform.Said, "m2", "a fox")
	require.Empty(t, r.prompts("5"))
	require.Empty(t, fake.Calls(), "no words leave the house before that")
	require.Len(t, r.p.in("5"), 5)
	r.event("5", "5", platform.Said, "m3", "/help")
	require.Contains(t, r.p.in("5")[5], "I make pictures")
}
