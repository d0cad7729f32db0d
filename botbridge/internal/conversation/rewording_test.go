package conversation

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/enhance"
	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakellm"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// words adds an endpoint for other words to a rig.
func (r *rig) words(e Enhance) *fakellm.Fake {
	r.t.Helper()
	fake := must.Get(fakellm.New())(r.t)
	server := httptest.NewServer(fake)
	e.Client = enhance.New(enhance.Options{
		URL: server.URL + "/v1", Key: fakellm.Key, Model: fakellm.Model, Timeout: 10 * time.Second, English: e.Translate,
	})
	r.t.Cleanup(func() {
		e.Client.Close()
		server.Close()
		require.Empty(r.t, fake.Broken())
	})
	if e.PerDay == 0 {
		e.PerDay = 50
	}
	r.with(func(o *Options) { o.Enhance = &e })
	r.restart()
	return fake
}

// restart continues with a Talk that remembers nothing.
func (r *rig) restart() { r.with(func(*Options) {}) }

// offered is the id of what the last event was answered with.
func (r *rig) offered() string { return request.IDOf("telegram/" + strconv.Itoa(r.last)) }

// press presses a button.
func (r *rig) press(user, chat, verb, id string) {
	r.t.Helper()
	r.pressed(user, chat, "question", request.ButtonData(verb, id))
}

// Nothing starts before the words are chosen, and then exactly one request does.
func TestBetterWords(t *testing.T) {
	type row struct {
		say, verb string
		want      []string
	}
	beside.Cases(t, map[string]row{
		"taken":             {"/generate a fox --enhance --steps 7", verbBetter, []string{"A FOX"}},
		"the flag is first": {"/generate —enhance a fox", verbBetter, []string{"A FOX"}},
		"own":               {"/generate a fox --enhance", verbOwn, []string{"a fox"}},
		"none":              {"/generate a fox --enhance", verbNone, nil},
		"the command":       {"/enhance a fox", verbBetter, []string{"A FOX"}},
		"plain words":       {"a fox --enhance", verbBetter, []string{"A FOX"}},
	}, func(t *testing.T, c row) {
		r := newRig(t, limits.Config{})
		r.words(Enhance{})
		r.event("5", "5", platform.Said, "m1", c.say)
		id := r.offered()
		require.Empty(t, r.prompts("5"))
		require.Contains(t, r.p.in("5")[0], "A FOX")
		r.restart()
		r.press("6", "5", c.verb, id)  // somebody else
		r.press("5", "99", c.verb, id) // forged, in another chat
		require.Empty(t, r.prompts("5"))
		r.press("5", "5", c.verb, id)
		require.Equal(t, c.want, r.prompts("5"))
		for _, verb := range []string{verbBetter, verbOwn, verbNone, c.verb} {
			r.press("5", "5", verb, id)
		}
		require.Equal(t, c.want, r.prompts("5"), "a choice is made once")
		require.Empty(t, r.prompts("6"))
	})
}

// What a model says sets nothing, and takes the way of everybody's words.
func TestBetterWordsAreWords(t *testing.T) {
	type row struct {
		answer string
		shown  string // in the bridge's message
		better string // the request with them; "" if they are not offered
	}
	beside.Cases(t, map[string]row{
		"arguments":   {"a fox --steps 999 -n 4 --model evil", "a fox --steps 999", "a fox --steps 999 -n 4 --model evil"},
		"a command":   {"/ban telegram:5", "/ban", "/ban telegram:5"},
		"moderation":  {"a Forbidden fox", "I'd rather not reword that", ""},
		"too long":    {strings.Repeat("fox ", 1500), "couldn't think of better words", ""},
		"nothing":     {" ", "couldn't think of better words", ""},
		"placeholder": {"a {words} fox", "a {words} fox", "a {words} fox"},
	}, func(t *testing.T, c row) {
		r := newRig(t, limits.Config{Words: []string{"forbidden"}})
		r.words(Enhance{}).Say(c.answer)
		r.event("5", "5", platform.Said, "m1", "/generate my fox --enhance")
		id := r.offered()
		require.Contains(t, r.p.in("5")[0], c.shown)
		if c.better == "" {
			require.NotContains(t, r.p.in("5")[0], "Forbidden")
			r.press("5", "5", verbBetter, id)
			require.Empty(t, r.prompts("5"), "a button that nobody has offered")
			r.press("5", "5", verbOwn, id)
			require.Equal(t, []string{"my fox"}, r.prompts("5"))
			return
		}
		r.press("5", "5", verbBetter, id)
		require.Equal(t, []string{c.better}, r.prompts("5"))
		rec := r.record(id)
		require.Zero(t, rec.Args.Steps)
		require.Empty(t, rec.Args.Model)
	})
}

// A failure is one sentence, and nothing is lost.
func TestNoBetterWords(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	fake := r.words(Enhance{PerDay: 2})
	fake.Misbehave(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	for n, want := range []string{"I can't think of better words right now.", "I can't think of better words right now.", "I've already found you better words 2 times today"} {
		r.event("5", "5", platform.Said, "m"+strconv.Itoa(n), "/generate a fox --enhance")
		id := r.offered()
		require.Contains(t, r.heard("5"), want)
		r.press("5", "5", verbOwn, id)
		require.Len(t, r.prompts("5"), n+1)
	}
	require.Len(t, fake.Calls(), 2)
	r.event("5", "5", platform.Said, "m9", "/generate a fox --enhance --steps 900")
	require.Contains(t, r.heard("5"), "too many steps", "a mistake is told before anybody is asked")
}

// What a press cannot start now, it can start later.
func TestOfferSurvivesARefusal(t *testing.T) {
	r := parallelRig(t, limits.Config{Pictures: 1})
	r.words(Enhance{})
	r.event("5", "5", platform.Said, "m1", "/generate a fox --enhance")
	id := r.offered()
	r.event("5", "5", platform.Said, "m2", "/generate a bear")
	r.press("5", "5", verbBetter, id)
	require.Equal(t, []string{"a bear"}, r.prompts("5"))
	require.NoError(t, r.talk.o.Guard.SetShare(r.ctx, "telegram:5", 2))
	r.press("5", "5", verbBetter, id)
	require.Equal(t, []string{"a bear", "A FOX"}, r.prompts("5"))
}

// An event that comes again, because the bridge was killed, asks and shows nothing twice.
func TestOfferOfARepeatedEvent(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	fake := r.words(Enhance{})
	r.event("5", "5", platform.Said, "m1", "/generate a fox --enhance")
	r.restart()
	r.last--
	r.event("5", "5", platform.Said, "m1", "/generate a fox --enhance")
	require.Len(t, fake.Calls(), 1)
	require.Len(t, r.p.in("5"), 1)
}

// A changed message is asked about anew, and replaces what runs only once that is chosen.
func TestEditedOffer(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.words(Enhance{})
	r.event("5", "5", platform.Said, "m1", "/generate a fox --enhance")
	first := r.offered()
	r.event("5", "5", platform.Edited, "m1", "/generate a fox --enhance")
	require.Len(t, r.p.in("5"), 1, "a change that nobody has made")
	r.event("5", "5", platform.Edited, "m1", "/generate a bear --enhance")
	second := r.offered()
	r.press("5", "5", verbBetter, first)
	require.Empty(t, r.prompts("5"))
	r.press("5", "5", verbBetter, second)
	require.Equal(t, []string{"A BEAR"}, r.prompts("5"))
	r.event("5", "5", platform.Edited, "m1", "/generate a wolf --enhance")
	require.Equal(t, []string{"A BEAR"}, r.prompts("5"))
	r.press("5", "5", verbOwn, r.offered())
	require.Eventually(t, func() bool {
		list := r.prompts("5")
		return len(list) == 1 && list[0] == "a wolf"
	}, time.Minute, 10*time.Millisecond)
}

// Words in another script become English only where the operator has it on, and only for
// those who do not mind.
func TestTranslation(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	fake := r.words(Enhance{Translate: true})
	fake.Say("a red fox")
	r.event("5", "5", platform.Said, "m1", "рыжая лиса")
	id := r.offered()
	require.Empty(t, r.prompts("5"))
	require.Contains(t, r.p.in("5")[0], "In English:\n\na red fox")
	r.press("5", "5", verbBetter, id)
	require.Equal(t, []string{"a red fox"}, r.prompts("5"))

	r.event("5", "5", platform.Said, "m2", "a bear")
	require.Equal(t, []string{"a red fox", "a bear"}, r.prompts("5"), "English is English")
	r.pressed("5", "5", "its settings", "set:5:translate:off")
	r.event("5", "5", platform.Said, "m3", "волк")
	require.Contains(t, r.prompts("5"), "волк")

	off := newRig(t, limits.Config{})
	off.words(Enhance{})
	off.event("5", "5", platform.Said, "m1", "рыжая лиса")
	require.Equal(t, []string{"рыжая лиса"}, off.prompts("5"))
}

// Those who have set it are asked each time; without an endpoint the flag is unknown.
func TestBetterWordsAsASetting(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	require.NoError(t, r.store.Put(r.ctx, "settings", "telegram:5", Settings{Better: true}, 0))
	r.event("5", "5", platform.Said, "m1", "/generate a fox")
	require.Equal(t, []string{"a fox"}, r.prompts("5"))
	r.event("5", "5", platform.Said, "m2", "/generate a fox --enhance")
	require.Contains(t, strings.Join(r.p.in("5"), "\n"), "There's no --enhance")
	r.words(Enhance{})
	r.event("5", "5", platform.Said, "m3", "/generate a fox")
	require.Equal(t, []string{"a fox"}, r.prompts("5"))
	var o offer
	require.NoError(t, r.store.People.Held(r.ctx, r.offered(), &o))
	require.Equal(t, "A FOX", o.Prompt)
	require.ErrorIs(t, r.store.People.Held(r.ctx, "another", &o), state.ErrNotFound)
}

// New words for a picture are words like any other.
func TestBetterWordsForARemix(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	id := r.made("generate", "5", "5")
	require.NoError(t, r.store.Put(r.ctx, request.MessageKind, request.MessageName("telegram", "5", "shown"), id, time.Hour))
	r.words(Enhance{Translate: true})
	asked := r.answer("5", "5", "shown", "/remix волк")
	require.Empty(t, r.prompts("5"))
	r.press("5", "5", verbBetter, asked)
	require.Equal(t, []string{"ВОЛК"}, r.prompts("5"))
	r.answer("5", "5", "shown", "/remix --steps 5")
	require.Equal(t, []string{"ВОЛК", "a fox"}, r.prompts("5"), "the words are the old ones")
}

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
	r := parallelRig(t, limits.Config{})
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
	r := parallelRig(t, limits.Config{})
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
	r := parallelRig(t, limits.Config{})
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
