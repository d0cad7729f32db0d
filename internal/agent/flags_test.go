package agent

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/gossip"
)

func TestTargets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		servers, direct []string
		want            []target
		fault           string
	}{
		"none":  {nil, nil, []target{}, ""},
		"one":   {[]string{"http://a:1"}, nil, []target{{"box", "http://a:1", "", "", "", false}}, ""},
		"two":   {[]string{"http://a:1", "http://a:2"}, nil, []target{{"box-1", "http://a:1", "", "", "", false}, {"box-2", "http://a:2", "", "", "", false}}, ""},
		"named": {[]string{"left=http://a:1", "http://a:2?x=y"}, nil, []target{{"left", "http://a:1", "", "", "", false}, {"box-2", "http://a:2?x=y", "", "", "", false}}, ""},
		"direct": {[]string{"http://a:1", "http://a:2"}, []string{"http://b:1", "https://b:2"}, []target{
			{"box-1", "http://a:1", "http://b:1", "", "", false}, {"box-2", "http://a:2", "https://b:2", "", "", false},
		}, ""},
		"direct for one of two": {[]string{"http://a:1", "http://a:2"}, []string{"http://b:1"}, nil, "want one for each --comfyui"},
		"direct without scheme": {[]string{"http://a:1"}, []string{"b:1"}, nil, "want http://"},
		"one name twice":        {[]string{"x=http://a:1", "x=http://a:2"}, nil, nil, `two instances are named "x"`},
		"bad name":              {[]string{"a b=http://a:1"}, nil, nil, "letters, digits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := targets("box", c.servers, c.direct, nil)
			if c.fault != "" {
				require.ErrorContains(t, err, c.fault)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestA1111Targets(t *testing.T) {
	t.Parallel()
	got, err := targets("box", []string{"http://a:1"}, []string{"http://b:1"}, []string{"http://a:2", "sd=http://a:3"})
	require.NoError(t, err)
	require.Equal(t, []target{
		{"box-1", "http://a:1", "http://b:1", "", "", false}, {"box-2", "http://a:2", "", "", "", true}, {"sd", "http://a:3", "", "", "", true},
	}, got)
	require.Equal(t, "a1111", got[2].kind())
	_, err = targets("box", []string{"sd=http://a:1"}, nil, []string{"sd=http://a:3"})
	require.ErrorContains(t, err, "--a1111: two instances")
}

func TestFromEnvironment(t *testing.T) {
	t.Parallel()
	var list []string
	var text, given, empty string
	var number int
	cmd := &cobra.Command{}
	cmd.Flags().StringSliceVar(&list, "join", nil, "")
	cmd.Flags().StringVar(&text, "restart-command", "", "")
	cmd.Flags().StringVar(&given, "name", "", "")
	cmd.Flags().StringVar(&empty, "serve", "default", "")
	cmd.Flags().IntVar(&number, "simulate", 0, "")
	require.NoError(t, cmd.ParseFlags([]string{"--name", "flag"}))
	environment := map[string]string{
		"COMFYHUB_AGENT_JOIN": "a:1,b:2", "COMFYHUB_AGENT_RESTART_COMMAND": "echo a, b", "COMFYHUB_AGENT_NAME": "variable",
		"COMFYHUB_AGENT_SERVE": "", "COMFYHUB_AGENT_SIMULATE": "3",
	}
	lookup := func(name string) (string, bool) { v, ok := environment[name]; return v, ok }
	require.NoError(t, fromEnvironment(cmd, lookup))
	require.Equal(t, []string{"a:1", "b:2"}, list)
	require.Equal(t, "echo a, b", text)
	require.Equal(t, "flag", given, "what was typed wins")
	require.Equal(t, "default", empty)
	require.Equal(t, 3, number)

	environment["COMFYHUB_AGENT_SIMULATE"] = "many"
	cmd.Flags().Lookup("simulate").Changed = false
	require.ErrorContains(t, fromEnvironment(cmd, lookup), "COMFYHUB_AGENT_SIMULATE")
}

func TestReadKey(t *testing.T) {
	t.Parallel()
	lookup := func(string) (string, bool) { return " from the environment\n", true }
	key, err := readKey("", lookup)
	require.NoError(t, err)
	require.Equal(t, "from the environment", key)
	file := filepath.Join(t.TempDir(), "key")
	_, err = readKey(file, lookup)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte("\n"), 0o600))
	_, err = readKey(file, lookup)
	require.ErrorContains(t, err, "empty")
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	key, err = readKey(file, lookup)
	require.NoError(t, err)
	require.Equal(t, "secret", key)
}

func TestHostName(t *testing.T) {
	t.Parallel()
	require.NoError(t, gossip.CheckName(hostName()))
}

func TestLoopbackIsOfTheHubsFamily(t *testing.T) {
	t.Parallel()
	for want, joins := range map[string][][]string{
		"127.0.0.1:0": {{"127.0.0.1:7946"}, {"localhost:7946"}, {"localhost"}, {"[::1]:7946", "127.0.0.1:7946"}},
		"[::1]:0":     {{"[::1]:7946"}, {"::1"}, {"[::1]"}},
	} {
		for _, join := range joins {
			require.Equal(t, want, loopbackLike(join), join)
		}
	}
}

func TestRunRefusesBadFlags(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no hub":           {[]string{"run"}, "--join"},
		"name":             {[]string{"run", "--join", "127.0.0.1", "--name", "a/b"}, "--name"},
		"simulate and not": {[]string{"run", "--join", "127.0.0.1", "--simulate", "1", "--comfyui", "http://a"}, "exclude"},
		"address":          {[]string{"run", "--join", "127.0.0.1:1", "--serve", "127.0.0.1:0", "--comfyui", "a:1"}, "--comfyui"},
		"no key":           {[]string{"run", "--join", "hub.invalid:1", "--serve", "127.0.0.1:0", "--comfyui", "http://a:1", "--key-file", ""}, "key-file"},
		"level":            {[]string{"simulate", "--log-level", "loud"}, "--log-level"},
		"argument":         {[]string{"run", "extra"}, "unknown command"},
		"command":          {[]string{"rnu"}, "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := newCommand()
			cmd.SetArgs(c.args)
			cmd.SetErr(io.Discard)
			cmd.SetOut(io.Discard)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			require.ErrorContains(t, cmd.ExecuteContext(ctx), c.want)
		})
	}
}
