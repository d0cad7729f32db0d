package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfysim"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestParseFaults(t *testing.T) {
	t.Parallel()
	f := must.Get(parseFaults([]string{"fail-every=5", "zombie", "slow-http=10"}))(t)
	require.Equal(t, sim.Faults{FailEvery: 5, Zombie: true, SlowHTTP: 10}, f)
	for _, bad := range []string{"unknown", "fail-every", "fail-every=x", "zombie=1", "oom-every=-1"} {
		_, err := parseFaults([]string{bad})
		require.Error(t, err, bad)
	}
}

func TestSimulate(t *testing.T) {
	t.Parallel()
	s := simulation{comfysim.Options{Count: 2, Port: freePair(t), TimeScale: 0.01, VRAM: "8GiB", Version: "0.33.0", Models: []string{"loras/a/b.safetensors"}}, slog.New(slog.DiscardHandler)}
	stop, urls, err := s.start(t.Context())
	require.NoError(t, err)
	require.Len(t, urls, 2)

	taken := s
	_, _, err = taken.start(t.Context())
	require.ErrorContains(t, err, "address already in use")
	taken.AnyPort = true
	stopOther, others, err := taken.start(t.Context())
	require.NoError(t, err)
	require.NotContains(t, others, urls[0])
	stopOther()

	client := must.Get(comfyui.NewClient(urls[1], comfyui.Options{}))(t)
	defer client.Close()
	stats := must.Get(client.SystemStats(t.Context()))(t)
	require.Equal(t, "0.33.0", stats.Version.String())
	require.EqualValues(t, 8<<30, stats.Devices[0].VRAMTotal)
	info, _, err := client.ObjectInfo(t.Context(), nil)
	require.NoError(t, err)
	require.Contains(t, string(info), "a/b.safetensors")
	stop()
	_, err = client.SystemStats(t.Context())
	require.ErrorIs(t, err, comfyui.ErrUnreachable)
}

// firstLine hands over what a command prints.
type firstLine struct{ lines chan string }

func (f firstLine) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		f.lines <- strings.TrimSpace(string(line))
	}
	return len(p), nil
}

// What must not be left behind ends when its standard input does.
func TestUntilEOF(t *testing.T) {
	t.Parallel()
	out := firstLine{make(chan string, 8)}
	cmd := newCommand()
	cmd.SetArgs([]string{"--port", "0", "--until-eof"})
	cmd.SetOut(out)
	cmd.SetErr(io.Discard)
	in, parent := io.Pipe()
	cmd.SetIn(in)
	ctx, signal := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	url := <-out.lines
	signal()
	client, err := comfyui.NewClient(url, comfyui.Options{})
	require.NoError(t, err)
	defer client.Close()
	_, err = client.SystemStats(t.Context())
	require.NoError(t, err, "a signal ends nothing")
	parent.Close()
	require.NoError(t, <-done)
}

func TestRefusesBadFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--vram=lots": "--vram", "--model=x": "--model", "--count=0": "simulated servers", "--log-level=loud": "--log-level", "--fault=x": "--fault", "--feature-flag==x": "--feature-flag", "extra": "unknown command",
	} {
		cmd := newCommand()
		cmd.SetArgs([]string{args})
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), want)
	}
}

// ComfyUI's own switches reach the servers.
func TestSwitchesOfComfyUI(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, url, want string
		args            []string
	}{
		{
			"flags", "/features", `"assets": true, "show_signin_button": true, "mine": "a,b"}`,
			[]string{"--feature-flag", "show_signin_button", "--feature-flag=enable_telemetry=yes", "--feature-flag=mine=a,b", "--feature-flag=assets=false"},
		},
		{"no assets", "/features", `"assets": false}`, []string{"--disable-assets"}},
		{"by date", "/system_stats", `"argv": ["main.py", "--listen", "--date-based-output"]`, []string{"--date-based-output"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var s simulation
			flags := pflag.NewFlagSet("comfysim", pflag.ContinueOnError)
			s.AllFlags(flags)
			require.NoError(t, flags.Parse(append(c.args, "--port=0", "--comfyui-version=0.38.1", "--vram=8GiB")))
			s.logger = slog.New(slog.DiscardHandler)
			stop, urls, err := s.start(t.Context())
			require.NoError(t, err)
			defer stop()
			resp := must.Get(http.Get(urls[0] + c.url))(t)
			defer resp.Body.Close()
			body := must.Get(io.ReadAll(resp.Body))(t)
			require.Contains(t, string(body), c.want)
		})
	}
}

// freePair returns the first of two neighbouring free ports.
func freePair(t *testing.T) int {
	t.Helper()
	address := must.Get(freeport.Addresses(2))(t)
	_, text, err := net.SplitHostPort(address)
	require.NoError(t, err)
	port := must.Get(strconv.Atoi(text))(t)
	return port
}
