package conversation

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// /help shows in a group what works there.
func TestHelpLeavesOutWhatIsOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{Messages: 1000})
	r.styled()
	last := func(chat, text string) string {
		r.event("5", chat, platform.Said, "m", text)
		said := r.p.in(chat)
		return said[len(said)-1]
	}
	require.Contains(t, last("-9", "/styles"), "film")
	r.regroup("9", "-9", "off", "generate")
	for _, text := range []string{"/help", "/start"} {
		require.NotContains(t, last("-9", text), "/generate -")
		require.NotContains(t, last("-9", text), "/styles", "no command here has styles")
		require.Contains(t, last("-9", text), "/inpaint")
	}
	require.Contains(t, last("5", "/help"), "/generate -", "elsewhere it works")
	const off = "The moderators of this group have turned /generate off."
	require.Equal(t, off, last("-9", "/help generate"))
	require.Equal(t, off, last("-9", "/help /generate cfg"))
	require.NotContains(t, last("-9", "/styles"), "film")
	require.Contains(t, last("5", "/help generate"), "--cfg")
	r.regroup("9", "-9", "on", "generate")
	require.Contains(t, last("-9", "/help"), "/generate -")
}

// The menu of a group leaves out what is off there, also if it could not be set at first,
// and until the bot leaves.
func TestMenuOfAGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	menu := func() (string, bool) {
		r.talk.Wait()
		r.p.mu.Lock()
		defer r.p.mu.Unlock()
		off, set := r.p.menus["-9"]
		return off, set
	}
	r.event("5", "-9", platform.Said, "m1", "/queue")
	r.regroup("9", "-9", "lang", "ru")
	_, set := menu()
	require.False(t, set, "the usual menu will do")

	r.p.fail["menu"] = errors.New("away")
	r.regroup("9", "-9", "off", "generate")
	_, set = menu()
	require.False(t, set)
	r.p.mu.Lock()
	delete(r.p.fail, "menu")
	r.p.mu.Unlock()
	clear(r.talk.menus.until) // a minute later, or after a restart
	r.event("5", "-9", platform.Said, "m2", "/queue")
	off, _ := menu()
	require.Equal(t, "generate", off)
	r.regroup("9", "-9", "off", "inpaint")
	off, _ = menu()
	require.Equal(t, "generate inpaint", off)

	r.p.mu.Lock()
	delete(r.p.menus, "-9")
	r.p.mu.Unlock()
	r.event("5", "-9", platform.Said, "m3", "/queue")
	_, set = menu()
	require.False(t, set, "it is set once")

	r.event("5", "-9", platform.Left, "", "")
	r.event("5", "-9", platform.Said, "m4", "/queue")
	off, set = menu()
	require.True(t, set, "what was left there is replaced")
	require.Empty(t, off)
	g, err := r.group()
	if err == nil {
		require.Empty(t, g.Menu)
		require.Empty(t, g.Off)
		return
	}
	require.ErrorIs(t, err, state.ErrNotFound)
}
