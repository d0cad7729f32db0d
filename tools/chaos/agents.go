package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// startAgents starts agents and divides the instances among them. The last ones only dial
// out, each to all hubs.
func (s *stage) startAgents(ctx context.Context, count, pull int) error {
	for n := range count {
		name := fmt.Sprintf("agent-%d", n+1)
		way := s.joining
		if n >= count-pull {
			way = s.pulling
		}
		args, err := way(ctx, name)
		if err != nil {
			return err
		}
		for i := n; i < len(s.servers); i += count {
			args = append(args, "--comfyui", "gpu"+strconv.Itoa(i+1)+"=http://"+s.servers[i].agent.addr())
		}
		p, err := programs.Start(programs.Spec{Name: name, Path: s.hubs[0].Set.Agent, Args: args, Dir: s.dir})
		if err != nil {
			return err
		}
		s.agents = append(s.agents, p)
	}
	return nil
}

// joining returns the arguments of an agent that joins the gossip.
func (s *stage) joining(_ context.Context, name string) ([]string, error) {
	serve, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	bind, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	gossip, err := s.listen(bind)
	if err != nil {
		return nil, err
	}
	args := []string{"run", "--name", name, "--serve", serve, "--bind", bind, "--advertise", gossip.addr()}
	for _, address := range s.gossip(nil) {
		args = append(args, "--join", address)
	}
	return args, nil
}

// pulling returns the arguments of an agent that opens tunnels, with a proxy in each.
func (s *stage) pulling(ctx context.Context, name string) ([]string, error) {
	token, err := s.hubs[0].token(ctx, name)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, name+".token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		return nil, err
	}
	args := []string{"pull", "--token-file", file}
	for _, h := range s.hubs {
		p, err := s.proxy(h.Addr)
		if err != nil {
			return nil, err
		}
		s.tunnels = append(s.tunnels, p)
		args = append(args, "--hub", "http://"+p.addr())
	}
	return args, nil
}

// token has the hub issue a token for a machine.
func (h *hub) token(ctx context.Context, machine string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.Admin+"/comfyhub/tokens?machine="+machine, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("a token for %s: %s", machine, resp.Status)
	}
	var issued struct{ Token string }
	err = json.NewDecoder(resp.Body).Decode(&issued)
	return issued.Token, err
}
