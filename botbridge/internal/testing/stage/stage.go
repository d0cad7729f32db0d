// Package stage sets up a hub, simulated instances and a bridge as separate
// processes, connected to a fake Telegram and a fake Discord. The demonstration and the end-to-end
// tests use it.
package stage

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// Options configure a Stage.
type Options struct {
	// Set is the programs, and Dir the folder for data and logs.
	Set programs.Set
	Dir string
	// Instances is the number of simulated ComfyUI servers. Default: 2.
	Instances int
	// AgentFlags are added to the agent's flags.
	AgentFlags []string
	// Fake are the options of the fake Telegram, Discord those of the fake Discord.
	Fake    fakebot.Options
	Discord fakediscord.Options
	// Config is bot.yaml, in which BRIDGE_URL stands for the bridge's own address and
	// HUB_URL for the hub's. Workflows are folders whose JSON files are stored beside
	// it.
	Config    string
	Workflows []string
	// Env is added to the bridge's environment.
	Env []string
}

// Stage is the whole setup. Fleet has the hub and the logs.
type Stage struct {
	*programs.Fleet
	o       Options
	Fake    *fakebot.Fake
	Discord *fakediscord.Fake
	// BridgeURL is the address of the bridge.
	BridgeURL string
	// Agent has the instances.
	Agent, Bridge *programs.Program

	api        *http.Server
	apiURL     string
	discord    *http.Server
	discordURL string
	config     string
}

// Open starts everything and waits until the fleet is ready. Close the stage even
// after an error.
func Open(ctx context.Context, o Options) (*Stage, error) {
	o.Instances = cmp.Or(o.Instances, 2)
	s := &Stage{Fleet: new(programs.Fleet), o: o, Fake: fakebot.New(o.Fake)}
	var err error
	if s.Discord, err = fakediscord.New(o.Discord); err != nil {
		return s, err
	}
	if err := s.prepare(); err != nil {
		return s, fmt.Errorf("preparing the stage: %w", err)
	}
	if err := s.StartHub(ctx); err != nil {
		return s, err
	}
	if s.Agent, err = s.StartAgent("stage", o.Instances, o.AgentFlags...); err != nil {
		return s, err
	}
	if err := s.AwaitFleet(ctx); err != nil {
		return s, err
	}
	if s.Bridge, err = s.startBridge(); err != nil {
		return s, err
	}
	return s, s.awaitBridge(ctx)
}

// prepare chooses ports, starts the fake and writes the configuration.
func (s *Stage) prepare() error {
	fleet, err := programs.NewFleet(s.o.Set, s.o.Dir, "embedded")
	if err != nil {
		return err
	}
	s.Fleet = fleet
	// The bridge names tenants: both programs get the secret by which it may.
	key := rand.Text()
	s.Env = []string{"COMFYHUB_TENANT_SECRET=" + key, "COMFYHUB_BOT_HUB_KEY=" + key}
	for _, url := range []*string{&s.apiURL, &s.discordURL, &s.BridgeURL} {
		address, err := freeport.Address()
		if err != nil {
			return err
		}
		*url = "http://" + address
	}
	if s.api, err = serve(s.apiURL, s.Fake); err != nil {
		return err
	}
	if s.discord, err = serve(s.discordURL, s.Discord); err != nil {
		return err
	}
	return s.writeConfig()
}

// writeConfig writes bot.yaml and the workflows to a folder of their own.
func (s *Stage) writeConfig() error {
	folder := filepath.Join(s.Dir, "bot")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, from := range s.o.Workflows {
		files, err := filepath.Glob(filepath.Join(from, "*.json"))
		if err != nil {
			return err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(folder, filepath.Base(file)), data, 0o600); err != nil {
				return err
			}
		}
	}
	s.config = filepath.Join(folder, "bot.yaml")
	return os.WriteFile(s.config, []byte(strings.NewReplacer("BRIDGE_URL", s.BridgeURL, "HUB_URL", s.URL("")).Replace(s.o.Config)), 0o600)
}

// serve makes a fake reachable.
func serve(url string, fake http.Handler) (*http.Server, error) {
	listener, err := net.Listen("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: fake, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return server, nil
}

// RestartBridge starts the bridge again and waits until it answers calls.
func (s *Stage) RestartBridge(ctx context.Context) error {
	if err := s.Bridge.Restart(); err != nil {
		return err
	}
	return s.awaitBridge(ctx)
}

func (s *Stage) startBridge() (*programs.Program, error) {
	return s.Start(programs.Spec{
		Name: "bridge", Path: s.Set.Bridge, Args: []string{"run", "--config", s.config},
		Env: append([]string{
			"COMFYHUB_BOT_TOKEN=" + fakebot.Token, "COMFYHUB_BOT_SERVER=" + s.apiURL,
			"COMFYHUB_DISCORD_TOKEN=" + fakediscord.Token, "COMFYHUB_DISCORD_SERVER=" + s.discordURL + "/api/v10",
			"COMFYHUB_BOT_HUB=" + s.URL(""),
			"COMFYHUB_BOT_DATA=" + filepath.Join(s.Dir, "bridge"), "COMFYHUB_BOT_LISTEN=" + strings.TrimPrefix(s.BridgeURL, "http://"),
		}, s.o.Env...),
	})
}

// awaitBridge waits until the bridge answers calls.
func (s *Stage) awaitBridge(ctx context.Context) error {
	return s.Bridge.Await(ctx, "the bridge answers", func(ctx context.Context) error {
		return programs.Get(ctx, s.BridgeURL+"/health/live", nil)
	})
}

// AwaitFleet waits until all instances are idle.
func (s *Stage) AwaitFleet(ctx context.Context) error {
	_, err := s.AwaitIdle(ctx, s.o.Instances)
	return err
}

// Close ends everything that was started.
func (s *Stage) Close() {
	s.Stop()
	s.Fake.Close()
	if s.Discord != nil {
		s.Discord.Close()
	}
	for _, server := range []*http.Server{s.api, s.discord} {
		if server != nil {
			_ = server.Close()
		}
	}
}
