package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// usage is what a program uses at one moment.
type usage struct {
	resident, peak int64 // bytes
	files          int   // open descriptors
	goroutines     int   // of a hub; 0 for other programs, and for a hub that does not answer
}

// measure reads what all programs use.
func (s *stage) measure(ctx context.Context) map[string]usage {
	all := map[string]usage{}
	note := func(name string, p *programs.Program) usage {
		var u usage
		u.resident, u.peak = p.Memory()
		if files, err := os.ReadDir("/proc/" + strconv.Itoa(p.PID()) + "/fd"); err == nil {
			u.files = len(files)
		}
		all[name] = u
		return u
	}
	for _, p := range s.store.nodes {
		note(p.Name(), p)
	}
	for _, h := range s.hubs {
		u := note(h.name, h.Hub)
		u.goroutines = h.goroutines(ctx)
		all[h.name] = u
	}
	for n, p := range s.agents {
		note(agentName(n), p)
	}
	for n, one := range s.servers {
		note(serverName(n), one.Program)
	}
	return all
}

// measured returns the names of the programs that measure knows, in their order.
func (s *stage) measured() []string {
	var all []string
	for _, p := range s.store.nodes {
		all = append(all, p.Name())
	}
	for n := range s.hubs {
		all = append(all, hubName(n))
	}
	for n := range s.agents {
		all = append(all, agentName(n))
	}
	for n := range s.servers {
		all = append(all, serverName(n))
	}
	return all
}

// goroutines reads the number of goroutines from the hub's metrics.
func (h *hub) goroutines(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.Admin+"/metrics", http.NoBody)
	if err != nil {
		return 0
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			n, _ := strconv.ParseFloat(text, 64)
			return int(n)
		}
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return 0
}
