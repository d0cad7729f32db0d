package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/programs"
)

// usage is what a program uses at one moment.
type usage struct {
	resident, peak int64 // bytes
	files          int   // open descriptors
	goroutines     int   // of a hub, 0 for other programs
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

// table shows what all programs used before and after.
func table(w io.Writer, s *stage, before, after map[string]usage) {
	fmt.Fprintln(w, "| program | resident before, MB | after | peak since its last start | descriptors before | after | goroutines before | after |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- |")
	row := func(name string) {
		b, a := before[name], after[name]
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %d | %d |\n", name,
			b.resident>>20, a.resident>>20, a.peak>>20, b.files, a.files, b.goroutines, a.goroutines)
	}
	for _, p := range s.store.nodes {
		row(p.Name())
	}
	for n := range s.hubs {
		row(hubName(n))
	}
	for n := range s.agents {
		row(agentName(n))
	}
	for n := range s.servers {
		row(serverName(n))
	}
}
