package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestTargets(t *testing.T) {
	type row struct {
		servers, direct []string
		want            []target
		fault           string
	}
	beside.Cases(t, map[string]row{
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
		"too many":              {slices.Repeat([]string{"http://a:1"}, 480), nil, nil, "480 instances, and an agent brings in 256 at most"},
		"bad name":              {[]string{"a b=http://a:1"}, nil, nil, "letters, digits"},
	}, func(t *testing.T, c row) {
		got, err := targets("box", c.servers, c.direct, nil)
		if c.fault != "" {
			require.ErrorContains(t, err, c.fault)
			return
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	})
}

func TestA1111Targets(t *testing.T) {
	t.Parallel()
	got := must.Get(targets("box", []string{"http://a:1"}, []string{"http://b:1"}, []string{"http://a:2", "sd=http://a:3"}))(t)
	require.Equal(t, []target{
		{"box-1", "http://a:1", "http://b:1", "", "", false}, {"box-2", "http://a:2", "", "", "", true}, {"sd", "http://a:3", "", "", "", true},
	}, got)
	require.Equal(t, "a1111", got[2].kind())
	_, err := targets("box", []string{"sd=http://a:1"}, nil, []string{"sd=http://a:3"})
	require.ErrorContains(t, err, "--a1111: two instances")
}

// Behind a tunnel all names begin with the machine's: hubs refuse others.
func TestNamesOfAMachineWithAToken(t *testing.T) {
	t.Parallel()
	list := must.Get(targets("attic", []string{"http://a:1", "left=http://a:2", "attic-x=http://a:3", "attic=http://a:4", "attic2=http://a:5"}, nil, nil))(t)
	require.NoError(t, ownNames("attic", list))
	var names []string
	for _, i := range list {
		names = append(names, i.name)
		require.True(t, fleet.OwnName("attic", i.name))
	}
	require.Equal(t, []string{"attic-1", "attic-left", "attic-x", "attic", "attic-attic2"}, names)
	list = must.Get(targets("attic", []string{"left=http://a:1", "attic-left=http://a:2"}, nil, nil))(t)
	require.ErrorContains(t, ownNames("attic", list), `two instances are named "attic-left"`)
	list = must.Get(targets("attic", []string{strings.Repeat("x", 60) + "=http://a:1"}, nil, nil))(t)
	require.ErrorIs(t, ownNames("attic", list), fleet.ErrName)
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
	key := must.Get(readKey("", lookup))(t)
	require.Equal(t, "from the environment", key)
	file := filepath.Join(t.TempDir(), "key")
	_, err := readKey(file, lookup)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte("\n"), 0o600))
	_, err = readKey(file, lookup)
	require.ErrorContains(t, err, "empty")
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	key = must.Get(readKey(file, lookup))(t)
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
	type row struct {
		args []string
		want string
	}
	beside.Cases(t, map[string]row{
		"no hub":           {[]string{"run"}, "--join"},
		"name":             {[]string{"run", "--join", "127.0.0.1", "--name", "a/b"}, "--name"},
		"simulate and not": {[]string{"run", "--join", "127.0.0.1", "--simulate", "1", "--comfyui", "http://a"}, "exclude"},
		"address":          {[]string{"run", "--join", "127.0.0.1:1", "--serve", "127.0.0.1:0", "--comfyui", "a:1"}, "--comfyui"},
		"no key":           {[]string{"run", "--join", "hub.invalid:1", "--serve", "127.0.0.1:0", "--comfyui", "http://a:1", "--key-file", ""}, "key-file"},
		"level":            {[]string{"simulate", "--log-level", "loud"}, "--log-level"},
		"argument":         {[]string{"run", "extra"}, "unknown command"},
		"command":          {[]string{"rnu"}, "unknown command"},
	}, func(t *testing.T, c row) {
		cmd := newCommand()
		cmd.SetArgs(c.args)
		cmd.SetErr(io.Discard)
		cmd.SetOut(io.Discard)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		require.ErrorContains(t, cmd.ExecuteContext(ctx), c.want)
	})
}

func TestDisks(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	spaces := map[string]room{"/out": {free: 50, size: 100}, "/temp": {free: 90, size: 100}}
	d := disks{reserve: 20, space: func(folder string) (room, error) {
		mu.Lock()
		defer mu.Unlock()
		if r, ok := spaces[folder]; ok {
			return r, nil
		}
		return room{}, errors.New("away")
	}}
	set := func(folder string, free int64) {
		mu.Lock()
		defer mu.Unlock()
		spaces[folder] = room{free: free, size: 100}
	}
	all := []string{"/out", "/temp", "/away"}
	_, _, known := d.of(all)
	require.False(t, known, "it was not looked at yet")
	changes := make(chan bool, 10)
	look := func() {
		d.look(func(_ string, _ room, full bool) { changes <- full })
		require.Eventually(t, func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, look := range d.folders {
				if look.busy {
					return false
				}
			}
			return true
		}, time.Minute, time.Millisecond)
	}
	for _, step := range []struct {
		free int64
		full bool
	}{{50, false}, {20, false}, {19, true}, {24, true}, {25, false}} {
		set("/out", step.free)
		look()
		r, full, known := d.of(all)
		require.True(t, known)
		require.Equal(t, room{step.free, 100}, r, "the fullest")
		require.Equal(t, step.full, full, step.free)
	}
	require.True(t, <-changes)
	require.False(t, <-changes)
	require.Empty(t, changes)
	_, _, known = d.of([]string{"/away"})
	require.False(t, known)
}

func TestSpace(t *testing.T) {
	t.Parallel()
	r := must.Get(space(t.TempDir()))(t)
	require.Positive(t, r.size)
	require.LessOrEqual(t, r.free, r.size)
	_, err := space("/nowhere/at/all")
	require.Error(t, err)
}

func TestFolders(t *testing.T) {
	t.Parallel()
	i := local("")
	i.output = "/out"
	i.seen.Command = strings.Join([]string{"main.py", "--output-directory", "/out/", "--temp-directory=/tmp/comfy", "--base-directory", "relative"}, "\x00")
	require.Equal(t, []string{"/out", "/tmp/comfy"}, i.folders())
	i.url = "http://10.0.0.9:8188"
	require.Empty(t, i.folders(), "they are on another machine")
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "500MB": 500 << 20, "2GB": 2 << 30, "1KB": 1 << 10, "77": 77} {
		var s size
		require.NoError(t, s.Set(text))
		require.EqualValues(t, want, s)
		require.Equal(t, text, s.String())
	}
	for _, text := range []string{"", "GB", "-1GB", "1.5GB", "99999999999999GB", "1TB"} {
		require.Error(t, new(size).Set(text), text)
	}
}

func FuzzSize(f *testing.F) {
	f.Add("2GB")
	f.Fuzz(func(t *testing.T, text string) {
		var s, again size
		if s.Set(text) == nil {
			require.GreaterOrEqual(t, int64(s), int64(0))
			require.NoError(t, again.Set(s.String()))
			require.Equal(t, s, again)
		}
	})
}

func TestPlanService(t *testing.T) {
	t.Parallel()
	p := must.Get(planService([]string{
		"run", "--join", "a:7946,b:7946", "--comfyui=left=http://127.0.0.1:8188", "--key-file", `C:\key`, "--stop-timeout", "5m",
		"--restart-command", "echo a, b", "--log-level", "debug",
	}))(t)
	require.Equal(t, `C:\key`, p.secretFile)
	require.Equal(t, 5*time.Minute, p.stopTimeout)
	args := p.arguments(`D:\agent key`, `D:\state`)
	require.Equal(t, []string{
		"run", `--key-file=D:\agent key`, "--comfyui=left=http://127.0.0.1:8188", "--join=a:7946", "--join=b:7946", "--log-level=debug",
		"--restart-command=echo a, b", "--stop-timeout=5m0s", `--state=D:\state`,
	}, args)
	require.ElementsMatch(t, args, must.Get(planService(args))(t).arguments(`D:\agent key`, ""), "the service reads what the plan has")

	p = must.Get(planService([]string{"pull", "--hub", "https://hub"}))(t)
	require.Equal(t, []string{"pull", `--token-file=t`, "--hub=https://hub"}, p.arguments("t", "s"))

	for want, args := range map[string][]string{
		"what does the service run": {"simulate"},
		"unknown command":           {"rnu"},
		"--join: which hub":         {"run"},
		"--hub: which hub":          {"pull"},
		"unknown flag":              {"run", "--unknown"},
		"takes no arguments":        {"run", "--join", "a", "extra"},
	} {
		_, err := planService(args)
		require.ErrorContains(t, err, want)
	}
}

func TestServiceSID(t *testing.T) {
	t.Parallel()
	// That of every Windows.
	require.Equal(t, "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464", serviceSID("TrustedInstaller"))
}

// An agent finds servers at ports that only their command lines tell.
func TestPortOf(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]int{
		"python main.py --port 9001":                                   9001,
		"/opt/venv/bin/python3 /opt/ComfyUI/main.py --cpu --port=9002": 9002,
		"python main.py --listen --port 8190 --cuda-device 1":          8190,
		"python main.py":              0, // the default is looked at anyway
		"python main.py --port":       0,
		"python main.py --port 70000": 0,
		"python main.py --port -1":    0,
		"python other.py --port 9003": 0,
		"":                            0,
	} {
		require.Equal(t, want, portOf(strings.ReplaceAll(command, " ", "\x00")), command)
	}
}
