// Package stage sets up a hub, simulated instances and a bridge as separate
// processes, connected to a fake Telegram. The demonstration and the end-to-end
// tests use it.
package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/fakebot"
	"github.com/comfyhub/comfyhub/internal/freeport"
)

// startTimeout bounds every start, even on a busy machine.
const startTimeout = 2 * time.Minute

// Options configure a Stage.
type Options struct {
	// Hub, Agent and Bridge are the programs.
	Hub, Agent, Bridge string
	// Dir is the folder for data and logs.
	Dir string
	// Instances is the number of simulated ComfyUI servers. Default: 2.
	Instances int
	// AgentFlags are added to the agent's flags.
	AgentFlags []string
	// Fake are the options of the fake Telegram.
	Fake fakebot.Options
	// Config is bot.yaml, in which BRIDGE_URL stands for the bridge's own address and
	// HUB_URL for the hub's. Workflows are folders whose JSON files are stored beside
	// it.
	Config    string
	Workflows []string
	// Env is added to the bridge's environment.
	Env []string
}

// Stage is the whole setup.
type Stage struct {
	o    Options
	Fake *fakebot.Fake
	// HubURL and BridgeURL are the addresses of the hub and the bridge.
	HubURL, BridgeURL string

	api                *http.Server
	apiURL             string
	hubAddr            string
	admin, gossip      string
	simulated, serve   string // the first instance, and the agent's address for all of them
	config             string
	hub, agent, bridge *Process
	standby            *Process
}

// Open starts everything and waits until the fleet is ready. Close the stage even
// after an error.
func Open(ctx context.Context, o Options) (*Stage, error) {
	if o.Instances == 0 {
		o.Instances = 2
	}
	s := &Stage{o: o, Fake: fakebot.New(o.Fake)}
	if err := s.prepare(); err != nil {
		return s, fmt.Errorf("preparing the stage: %w", err)
	}
	if err := s.StartHub(); err != nil {
		return s, err
	}
	if err := s.StartAgent(); err != nil {
		return s, err
	}
	if err := s.AwaitFleet(ctx); err != nil {
		return s, err
	}
	return s, s.StartBridge()
}

func (s *Stage) log(name string) string { return filepath.Join(s.o.Dir, name+".log") }

// prepare chooses ports, starts the fake and writes the configurations.
func (s *Stage) prepare() error {
	telegram, err := freeport.Address()
	if err != nil {
		return err
	}
	s.apiURL = "http://" + telegram
	if err := s.StartTelegram(); err != nil {
		return err
	}

	var bridge string
	for _, address := range []*string{&s.hubAddr, &s.admin, &s.gossip, &s.serve, &bridge} {
		if *address, err = freeport.Address(); err != nil {
			return err
		}
	}
	if s.simulated, err = freeport.Addresses(s.o.Instances); err != nil {
		return err
	}
	s.HubURL, s.BridgeURL = "http://"+s.hubAddr, "http://"+bridge
	if err := s.writeConfig(); err != nil {
		return err
	}
	// The bridge names tenants. The hub trusts it because it calls from this machine.
	caddyfile := fmt.Sprintf(`{
	admin %s
	grace_period 5s
	persist_config off
	comfyhub {
		redis embedded
		data %s
		gossip {
			bind %s
		}
	}
}
http://:%s {
	bind 127.0.0.1
	comfyhub {
		trust_tenant_from 127.0.0.1
	}
}
`, s.admin, filepath.Join(s.o.Dir, "hub"), s.gossip, s.hubAddr[strings.LastIndexByte(s.hubAddr, ':')+1:])
	return os.WriteFile(filepath.Join(s.o.Dir, "Caddyfile"), []byte(caddyfile), 0o600)
}

// writeConfig writes bot.yaml and the workflows to a folder of their own.
func (s *Stage) writeConfig() error {
	folder := filepath.Join(s.o.Dir, "bot")
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
	return os.WriteFile(s.config, []byte(strings.NewReplacer("BRIDGE_URL", s.BridgeURL, "HUB_URL", s.HubURL).Replace(s.o.Config)), 0o600)
}

// StartHub starts the hub.
func (s *Stage) StartHub() (err error) {
	home := filepath.Join(s.o.Dir, "caddy")
	env := []string{"XDG_DATA_HOME=" + home, "XDG_CONFIG_HOME=" + home}
	s.hub, err = start("hub", s.log("hub"), env, s.o.Hub, "run", "--config", filepath.Join(s.o.Dir, "Caddyfile"), "--adapter", "caddyfile")
	return err
}

// StartTelegram makes the fake reachable.
func (s *Stage) StartTelegram() error {
	listener, err := net.Listen("tcp", strings.TrimPrefix(s.apiURL, "http://"))
	if err != nil {
		return err
	}
	s.api = &http.Server{Handler: s.Fake, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.api.Serve(listener) }()
	return nil
}

// StopTelegram cuts all connections to the fake and refuses new ones.
func (s *Stage) StopTelegram() { _ = s.api.Close() }

// StartAgent starts the agent with its instances.
func (s *Stage) StartAgent() (err error) {
	_, port, err := net.SplitHostPort(s.simulated)
	if err != nil {
		return err
	}
	// The agent gets its own ports. With the usual ones, the instances of another
	// stage would appear when this stage's instances are killed.
	flags := []string{"run", "--join", s.gossip, "--name", "stage", "--simulate", strconv.Itoa(s.o.Instances), "--port", port, "--serve", s.serve}
	flags = append(flags, s.o.AgentFlags...)
	s.agent, err = start("agent", s.log("agent"), nil, s.o.Agent, flags...)
	return err
}

// StartBridge starts the bridge.
func (s *Stage) StartBridge() (err error) {
	if s.bridge, err = s.startBridge(s.BridgeURL); err != nil {
		return err
	}
	return s.awaitBridge()
}

// StartStandby starts a second bridge, which shares the state of the first. That
// state must not be embedded.
func (s *Stage) StartStandby() error {
	address, err := freeport.Address()
	if err != nil {
		return err
	}
	s.standby, err = s.startBridge("http://" + address)
	return err
}

func (s *Stage) startBridge(url string) (*Process, error) {
	env := append([]string{
		"COMFYHUB_BOT_TOKEN=" + fakebot.Token, "COMFYHUB_BOT_SERVER=" + s.apiURL, "COMFYHUB_BOT_HUB=" + s.HubURL,
		"COMFYHUB_BOT_DATA=" + filepath.Join(s.o.Dir, "bridge"), "COMFYHUB_BOT_LISTEN=" + strings.TrimPrefix(url, "http://"),
	}, s.o.Env...)
	return start("bridge", s.log("bridge"), env, s.o.Bridge, "run", "--config", s.config)
}

// awaitBridge waits until the bridge answers calls.
func (s *Stage) awaitBridge() error {
	deadline := time.Now().Add(startTimeout)
	for time.Now().Before(deadline) && s.bridge.Running() {
		response, err := http.Get(s.BridgeURL + "/health/live")
		if err == nil {
			response.Body.Close()
			if s.bridge.Running() { // otherwise another process has answered
				return nil
			}
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("the bridge does not come up")
}

// KillHub kills the hub without a chance to clean up.
func (s *Stage) KillHub() { s.hub.Kill() }

// KillAgent kills the agent and its instances without a chance to clean up.
func (s *Stage) KillAgent() { s.agent.Kill() }

// KillBridge kills the bridge without a chance to clean up.
func (s *Stage) KillBridge() { s.bridge.Kill() }

// Bridge returns the process of the bridge.
func (s *Stage) Bridge() *Process { return s.bridge }

// AwaitFleet waits until the hub has all instances idle.
func (s *Stage) AwaitFleet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last error
	for {
		var list []struct {
			State string `json:"state"`
		}
		idle := 0
		if last = s.get(ctx, s.HubURL+"/hub/instances", &list); last == nil {
			for _, i := range list {
				if i.State == "idle" {
					idle++
				}
			}
		}
		if idle >= s.o.Instances {
			return nil
		}
		timer := time.NewTimer(100 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("the fleet is not ready: %d of %d instances are idle (%w)", idle, s.o.Instances, errors.Join(ctx.Err(), last))
		}
	}
}

func (s *Stage) get(ctx context.Context, url string, answer any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: status %d", url, response.StatusCode)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// Logs returns the last part of each program's log.
func (s *Stage) Logs() string {
	const last = 6000
	var b strings.Builder
	for _, name := range []string{"hub", "agent", "bridge"} {
		text, err := os.ReadFile(s.log(name))
		if err != nil {
			continue
		}
		fmt.Fprintf(&b, "--- the end of %s.log\n%s\n", name, text[max(0, len(text)-last):])
	}
	return b.String()
}

// Close ends everything that was started.
func (s *Stage) Close() {
	for _, p := range []*Process{s.standby, s.bridge, s.agent, s.hub} {
		if p != nil {
			p.Stop()
		}
	}
	s.Fake.Close()
	if s.api != nil {
		_ = s.api.Close()
	}
}
