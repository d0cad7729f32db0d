package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/internal/tunnel"
)

func newPullCommand() *cobra.Command {
	var (
		c         config
		servers   []string
		a1111     []string
		tokenFile string
		state     string
	)
	cmd := &cobra.Command{
		Use:   "pull --hub https://hub.example.com --token-file FILE --comfyui http://127.0.0.1:8188",
		Short: "Bring this machine's instances into the fleet over outgoing HTTPS only",
		Long: "pull is run for a machine that nobody can reach, at home or in a rented pod. It needs no\n" +
			"open port and no gossip key: it opens a tunnel to the hub's own site, and the hub reaches\n" +
			"the instances inside it. A token says which machine this is; the operator of the hub makes\n" +
			"one with `comfyhub token add NAME`. Give --hub for each hub that is to use this machine.",
		Example: "  agent pull --hub https://hub.example.com --token-file token --comfyui http://127.0.0.1:8188",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := fromEnvironment(cmd, os.LookupEnv)
			if err != nil {
				return err
			}
			if c.logger, err = newLogger(cmd); err != nil {
				return err
			}
			if len(c.hubs) == 0 {
				return errors.New("--hub: which hub? https://HOST")
			}
			for _, hub := range c.hubs {
				if _, err := tunnel.SiteURL(hub); err != nil {
					return fmt.Errorf("--hub: %w", err)
				}
			}
			if c.token, err = readToken(tokenFile, os.LookupEnv); err != nil {
				return err
			}
			if c.name, err = tunnel.Machine(c.token); err != nil {
				return err
			}
			if c.targets, err = targets(c.name, servers, nil, a1111); err != nil {
				return err
			}
			if err := ownNames(c.name, c.targets); err != nil {
				return err
			}
			if err := c.machine.place(c.targets, len(servers)); err != nil {
				return err
			}
			if c.state, err = lasting(&c.machine, state, os.LookupEnv); err != nil {
				return err
			}
			c.version = version()
			if tunnel.IsOnce(c.token) {
				folder, err := stateFolder(state, os.LookupEnv)
				if err != nil {
					return err
				}
				j := &joiner{hubs: c.hubs, once: c.token, state: folder, userAgent: userAgent(c.version), client: http.DefaultClient, log: c.logger}
				if c.token, err = j.join(cmd.Context()); err != nil {
					return err
				}
			}
			hurry, stop := secondSignal()
			defer stop()
			c.hurry = hurry
			growHeap()
			return c.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.hubs, "hub", nil, "`URL` of a hub's site, https://HOST; can be repeated")
	f.StringSliceVar(&servers, "comfyui", nil, "`URL` of a ComfyUI, or NAME=URL for the name MACHINE-NAME; can be repeated (default: those at the usual ports of this machine)")
	f.StringSliceVar(&a1111, "a1111", nil, "`URL` of an A1111 instance (started with --api), or NAME=URL; can be repeated")
	f.StringVar(&tokenFile, "token-file", "", "`file` with this machine's token (default: the variable "+tokenVariable+")")
	f.StringVar(&state, "state", "", "`folder` for what the agent must remember of --output-dir, and for its token if that is good once (default: STATE_DIRECTORY of systemd, else comfyhub-agent in the user's configuration folder)")
	c.machine.flags(f)
	f.DurationVar(&c.stopTimeout, "stop-timeout", time.Minute, "`time` for which an agent that is asked to stop waits for the runs of its instances; it gets no new ones, and a second signal stops it at once")
	return cmd
}

// tokenVariable holds the token of a machine.
const tokenVariable = "COMFYHUB_TOKEN" // #nosec G101 -- its name

// readToken returns the token from the file, or from the environment.
func readToken(file string, lookup func(string) (string, bool)) (string, error) {
	if file == "" {
		if token, _ := lookup(tokenVariable); strings.TrimSpace(token) != "" {
			return strings.TrimSpace(token), nil
		}
		return "", errors.New("--token-file: which token? The operator of the hub makes one with `comfyhub token add NAME`")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("--token-file %s: empty", file)
	}
	return token, nil
}
