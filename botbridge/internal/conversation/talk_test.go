package conversation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

func TestCommandOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"/generate a fox":       {"generate", "a fox"},
		"  /Generate\ta  fox  ": {"generate", "a  fox"},
		"/poster":               {"poster", ""},
		"/ban 5\n3":             {"ban", "5\n3"},
		"/ a":                   {"", "a"},
		"/статус":               {"статус", ""},
	} {
		name, rest, ok := commandOf(text)
		require.True(t, ok, text)
		require.Equal(t, want, [2]string{name, rest}, text)
	}
	for _, text := range []string{"", "/", "a /b", "generate"} {
		_, _, ok := commandOf(text)
		require.False(t, ok, text)
	}
	name, _, ok := commandOf("/" + strings.Repeat("x", 1000))
	require.True(t, ok)
	require.Empty(t, name, "no command has such a name")
}

func FuzzCommandOf(f *testing.F) {
	f.Add("/generate a fox")
	f.Add("/")
	f.Fuzz(func(t *testing.T, text string) {
		name, rest, ok := commandOf(text)
		require.True(t, ok || name == "" && rest == "")
		require.NotContains(t, name, " ")
	})
}

func TestChatKey(t *testing.T) {
	t.Parallel()
	for _, c := range []platform.Chat{{ID: "5"}, {ID: "-100", Group: true}, {ID: "odd|id"}} {
		name, got, ok := ParseChatKey(ChatKey("telegram", c))
		require.True(t, ok)
		require.Equal(t, "telegram", name)
		require.Equal(t, c, got)
	}
	_, _, ok := ParseChatKey("telegram|5")
	require.False(t, ok)
}

// Every name that the bridge answers to is kept from workflows.
func TestReservedNames(t *testing.T) {
	t.Parallel()
	texts, err := locale.Load("")
	require.NoError(t, err)
	for _, o := range []Options{{Texts: texts}, {Texts: texts, Enhance: &Enhance{}}} {
		talk := New(o)
		var names []string
		for name := range talk.messages.builtIn {
			names = append(names, name)
		}
		for name := range talk.messages.admin {
			names = append(names, name)
		}
		require.ElementsMatch(t, Reserved(o.Enhance != nil), names)
	}
}
