// Package view shows jobs and the fleet to viewers, to each what it may see.
package view

import (
	"log/slog"
	"strings"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stats"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/tenants"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
)

// Viewer is somebody who looks at jobs and at the fleet.
type Viewer = job.Viewer

// Stops says what the operator has paused.
type Stops interface {
	// Has reports whether something is paused.
	Has(s queue.Stop) bool
	// Holds reports whether a tenant gets no more runs.
	Holds(tenant string) bool
}

// Insight shows the fleet and the jobs to viewers, to each what it may see. Its errors are those of
// Redis, besides those that a method names.
type Insight struct {
	Queue    *queue.Queue
	Fleet    *fleet.Registry
	Dispatch *dispatch.Dispatcher
	Streams  *stream.Streams
	Logins   *tenants.Logins
	LimitsOf func(tenant string) config.TenantLimits
	Settings func() *config.Settings
	Stops    Stops
	// Pages says where ComfyUI's page comes from.
	Pages *origin.PageSource
	// Bond says whether Redis and the storage belong together.
	Bond     *files.Bond
	Searches Searches
	Trends   *stats.Trends
	// Files says whether previews were opened, and Dismissed which hints tenants do not want.
	Files     *files.Store
	Dismissed Dismissed
	Log       func() *slog.Logger
}

// SeesAll reports whether a viewer may learn everybody's addresses, reasons and numbers: operators
// may, and everybody where nobody logs in; otherwise only those who may speak for every tenant and
// are speaking for none.
func (s *Insight) SeesAll(v Viewer) bool {
	return v.Operator || !v.Login && (v.Trusted || !s.Logins.Lately())
}

// WithoutAddresses returns a function that replaces the addresses of instances with their names, if
// the viewer may not learn them.
func (s *Insight) WithoutAddresses(v Viewer) func(string) string { return s.cleaner(s.SeesAll(v)) }

// cleaner is withoutAddresses for viewers who may learn all addresses or none.
func (s *Insight) cleaner(all bool) func(string) string {
	if all {
		return func(text string) string { return text }
	}
	var pairs []string
	for _, i := range s.Fleet.Instances() {
		_, address, _ := strings.Cut(i.URL, "://")
		address, _, _ = strings.Cut(address, "/")
		if address != "" {
			pairs = append(pairs, i.URL, i.Name, address, i.Name)
		}
	}
	return strings.NewReplacer(pairs...).Replace
}
