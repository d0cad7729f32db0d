package conversation

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// The form of a command has what its workflow takes, and every text is there in every
// language.
func TestDeclare(t *testing.T) {
	t.Parallel()
	texts, err := locale.Load("")
	require.NoError(t, err)
	var commands []*workflow.Command
	for _, name := range []string{"generate", "edit"} {
		file, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "bot", name+".json"))
		require.NoError(t, err)
		c, err := workflow.NewCommand(name, workflow.Spec{About: map[string]string{"en": name, "ru": "картинка"}, Models: []string{"a.safetensors"}}, file)
		require.NoError(t, err)
		commands = append(commands, c)
	}
	list := Declare(texts, commands, true)
	require.Len(t, list, 2+len(Menu(true))+3)
	arguments := func(c platform.Command) map[string]platform.Argument {
		found := map[string]platform.Argument{}
		for _, a := range c.Arguments {
			require.NotContains(t, found, a.Name)
			found[a.Name] = a
		}
		return found
	}
	generate, edit := arguments(list[0]), arguments(list[1])
	require.True(t, generate["prompt"].Required)
	require.Equal(t, "--no", generate["negative"].Flag)
	require.InDelta(t, 4, generate["count"].Max, 0)
	require.Equal(t, []string{"a.safetensors"}, generate["model"].Choices)
	require.Contains(t, generate["size"].Choices, "1024x1024")
	require.Equal(t, platform.Switch, generate["enhance"].Kind)
	require.Contains(t, generate, "cfg", "an input that nobody has declared")
	require.Equal(t, platform.Picture, edit["image"].Kind)
	require.True(t, edit["image"].Required)
	require.False(t, edit["prompt"].Required)
	for _, c := range list {
		for _, a := range c.Arguments {
			for _, language := range []string{"", "ru"} {
				require.NotEmpty(t, a.About[language], "%s %s", c.Name, a.Name)
				require.NotContains(t, a.About[language], "argument_", "%s %s", c.Name, a.Name)
			}
		}
		require.NotEmpty(t, c.About["ru"])
	}
	require.True(t, list[len(list)-1].Private)
}
