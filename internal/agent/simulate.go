package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
)

// simulation is a number of simulated servers on consecutive ports.
type simulation struct {
	count, port int
	// a1111 plays A1111 servers, not ComfyUI.
	a1111 bool
	// anyPort uses free loopback ports if the wanted ones are taken.
	anyPort bool
	logger  *slog.Logger

	comfyVersion       string
	stepTime, loadTime time.Duration
	timeScale          float64
	models             []string
	vram               string
	faults             []string
	previewMethod      string
}

// defaultModels are the checkpoints of ComfyUI's own example workflows.
var defaultModels = []string{
	"checkpoints/v1-5-pruned-emaonly-fp16.safetensors", "checkpoints/v1-5-pruned-emaonly.safetensors",
	"checkpoints/sd_xl_base_1.0.safetensors",
}

func (s *simulation) flags(f *pflag.FlagSet, port string) {
	f.IntVar(&s.port, "port", 3188, port)
	f.StringVar(&s.comfyVersion, "comfyui-version", "0.3.64", "`version` of ComfyUI to play")
	f.DurationVar(&s.stepTime, "step-time", 100*time.Millisecond, "`duration` of one sampling step")
	f.DurationVar(&s.loadTime, "load-time", 0, "`duration` of loading a model")
	f.Float64Var(&s.timeScale, "time-scale", 1, "`factor` on every simulated duration")
	f.StringSliceVar(&s.models, "model", defaultModels, "model `file` that the servers have, FOLDER/NAME; can be repeated")
	f.StringVar(&s.vram, "vram", "24GiB", "`size` of the simulated GPU's memory")
	f.StringVar(&s.previewMethod, "preview-method", "none", "`method` of previews: none, auto, latent2rgb, taesd")
	f.StringSliceVar(&s.faults, "fault", nil, "`fault` of every server, can be repeated: fail-every=N, oom-every=N, hang-after-step=N, die-after-step=N, slow-http=MS, mute, zombie, prompt-error, refuse-prompt")
}

func newSimulateCommand() *cobra.Command {
	var s simulation
	cmd := &cobra.Command{
		Use:     "simulate --count 3 --port 3188",
		Short:   "Run simulated ComfyUI servers",
		Long:    "Run simulated ComfyUI servers, or A1111 servers, on consecutive ports of loopback, until interrupted.\nThey need no GPU, answer as the real ones do, and paint pictures instead of sampling them.",
		Example: "  agent simulate --count 3 --port 3188 --time-scale 0.1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := fromEnvironment(cmd, os.LookupEnv)
			if err != nil {
				return err
			}
			if s.logger, err = newLogger(cmd); err != nil {
				return err
			}
			stop, urls, err := s.start(cmd.Context())
			if err != nil {
				return err
			}
			defer stop()
			for _, u := range urls {
				fmt.Fprintln(cmd.OutOrStdout(), u)
			}
			<-cmd.Context().Done()
			return nil
		},
	}
	s.flags(cmd.Flags(), "first `port`")
	cmd.Flags().IntVar(&s.count, "count", 1, "`number` of servers")
	cmd.Flags().BoolVar(&s.a1111, "a1111", false, "play servers of A1111's API instead, whose checkpoints and LoRAs are the models in checkpoints/ and loras/")
	return cmd
}

// start runs the servers until stop is called or ctx ends.
func (s *simulation) start(ctx context.Context) (stop func(), urls []string, err error) {
	if s.count < 1 || s.count > 1000 {
		return nil, nil, fmt.Errorf("want 1 to 1000 simulated servers, not %d", s.count)
	}
	c, err := s.config()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	stop = func() { cancel(); work.Wait() }
	for n := range s.count {
		c.Name = fmt.Sprintf("sim-%d", n+1)
		server, err := s.server(c)
		if err != nil {
			stop()
			return nil, nil, err
		}
		listener, err := s.listen(ctx, s.port+n)
		if err != nil {
			server.Close()
			stop()
			return nil, nil, err
		}
		urls = append(urls, "http://"+listener.Addr().String())
		work.Go(func() {
			defer server.Close()
			if err := server.Serve(ctx, listener); err != nil {
				s.logger.Error("a simulated server ended", "error", err)
			}
		})
	}
	return stop, urls, nil
}

// simulated is a simulated server.
type simulated interface {
	Serve(ctx context.Context, ln net.Listener) error
	Close()
}

func (s *simulation) server(c sim.Config) (simulated, error) {
	if !s.a1111 {
		return sim.New(c)
	}
	return ofA1111{simsd.New(simsd.Config{
		Models: c.Models["checkpoints"], Loras: c.Models["loras"], Logger: c.Logger, VRAM: c.VRAM,
		StepTime: scaled(c.StepTime, c.TimeScale), LoadTime: scaled(c.LoadTime, c.TimeScale),
	})}, nil
}

func scaled(d time.Duration, scale float64) time.Duration { return time.Duration(float64(d) * scale) }

// ofA1111 is a simulated A1111 server, which has nothing to close.
type ofA1111 struct{ *simsd.Server }

// Close implements simulated.
func (ofA1111) Close() {}

func (s *simulation) listen(ctx context.Context, port int) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) && s.anyPort {
		s.logger.Info("the port is taken, using another", "port", port)
		listener, err = config.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("simulated server: %w", err)
	}
	return listener, nil
}

func (s *simulation) config() (sim.Config, error) {
	c := sim.Config{
		Version: s.comfyVersion, StepTime: s.stepTime, LoadTime: s.loadTime, TimeScale: s.timeScale,
		PreviewMethod: s.previewMethod, Models: map[string][]string{}, Logger: s.logger,
	}
	vram, err := humanize.ParseBytes(s.vram)
	if err != nil || vram > 1<<50 {
		return c, fmt.Errorf("--vram %q: want a size such as 24GiB", s.vram)
	}
	c.VRAM = int64(vram)
	for _, m := range s.models {
		folder, name, ok := strings.Cut(m, "/")
		if !ok || folder == "" || name == "" {
			return c, fmt.Errorf("--model %q: want FOLDER/NAME, such as checkpoints/sd.safetensors", m)
		}
		c.Models[folder] = append(c.Models[folder], name)
	}
	c.Faults, err = parseFaults(s.faults)
	return c, err
}

// parseFaults parses the --fault flags.
func parseFaults(list []string) (sim.Faults, error) {
	var f sim.Faults
	numbers := map[string]*int{
		"fail-every": &f.FailEvery, "oom-every": &f.OOMEvery, "hang-after-step": &f.HangAfterStep,
		"die-after-step": &f.DieAfterStep, "slow-http": &f.SlowHTTP,
	}
	switches := map[string]*bool{
		"mute": &f.Mute, "zombie": &f.Zombie, "prompt-error": &f.PromptError, "refuse-prompt": &f.RefusePrompt,
	}
	for _, item := range list {
		name, value, valued := strings.Cut(item, "=")
		if on := switches[name]; on != nil && !valued {
			*on = true
			continue
		}
		number := numbers[name]
		if number == nil {
			return f, fmt.Errorf("--fault %q: unknown", item)
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return f, fmt.Errorf("--fault %q: want a number after the =", item)
		}
		*number = n
	}
	return f, nil
}
