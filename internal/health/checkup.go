// Package health says whether a hub can work: before it begins, whenever somebody asks, and in detail
// to operators who want to know what is wrong.
package health

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/machines"
	"github.com/comfyhub/comfyhub/internal/metrics"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/retention"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
)

const (
	// slowRedis is the time that a request to Redis should not take.
	slowRedis = 10 * time.Millisecond
	// maxSkew is how far apart clocks may be.
	maxSkew = time.Second
	// maxNamed bounds the names in a finding, maxFindings the findings of one kind.
	maxNamed    = 5
	maxFindings = 50
)

func finding(level config.Level, about, says, do string) config.Finding {
	return config.Finding{Level: level, About: about, Says: says, Do: do}
}

// Checkup checks what a hub depends on, for an operator who wants to know what is wrong.
type Checkup struct {
	// Started reports whether the hub serves, and Ready says why it does not.
	Started   func() bool
	Ready     func(ctx context.Context) error
	Readiness *Readiness
	Settings  func() *config.Settings
	DB        *redis.DB
	Storage   *files.Storage
	Bond      *files.Bond
	Disks     []*metrics.Disk
	Keys      *apikeys.Keys
	Machines  *machines.Machines
	Pages     *origin.PageSource
	Fleet     *fleet.Registry
	Clients   *comfyui.Clients
	// Connected are the instances with a connection, and Infos describe what each can run.
	Connected func() []*comfyui.Client
	Infos     func() map[string]*catalog.Info
	// Gossip is where agents of other machines can join, empty for nowhere.
	Gossip  string
	Members func() []gossip.Member
}

// Findings checks everything. It makes some requests to Redis, and waits for nothing else.
func (c *Checkup) Findings(ctx context.Context) []config.Finding {
	if err := c.Ready(ctx); err != nil && !c.Started() {
		return []config.Finding{finding(config.LevelError, "hub", err.Error(), "the hub begins by itself once this is fixed; its log says more")}
	}
	return slices.Concat(c.Settings().Doubts, c.redis(ctx), c.storage(), c.keys(), c.tokens(ctx), c.names(), c.page(), c.gossip(), c.instances(), c.differences())
}

func (c *Checkup) redis(ctx context.Context) []config.Finding {
	db := c.DB
	if err := c.Readiness.Check(ctx); err != nil {
		return []config.Finding{finding(config.LevelError, "redis", err.Error(), "prompts are refused until Redis answers and stores what scripts write")}
	}
	if db.Embedded() {
		return []config.Finding{finding(config.LevelOK, "redis", "the queue is embedded, for this hub alone", "")}
	}
	var list []config.Finding
	warnings, _ := db.Warnings(ctx)
	for _, w := range warnings {
		list = append(list, finding(config.LevelWarning, "redis", w, ""))
	}
	var took []time.Duration
	for range 5 {
		before := time.Now()
		if _, err := db.Now(ctx); err == nil { // Ping has just worked
			took = append(took, time.Since(before))
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		trip := took[len(took)/2]
		if trip > slowRedis {
			list = append(list, finding(config.LevelWarning, "redis", fmt.Sprintf("a request takes %s", trip.Round(time.Millisecond)), "put Redis near the hub: each prompt takes some eight requests"))
		}
		if skew := db.Clock().Skew(); skew.Abs() >= maxSkew {
			list = append(list, finding(config.LevelWarning, "clock", fmt.Sprintf("this machine's clock and that of Redis differ by %s", skew.Abs().Round(100*time.Millisecond)), "let both follow a time server"))
		}
		if len(list) == 0 {
			list = append(list, finding(config.LevelOK, "redis", fmt.Sprintf("it answers in %s", trip.Round(10*time.Microsecond)), ""))
		}
	}
	return list
}

func (c *Checkup) storage() []config.Finding {
	list := []config.Finding{finding(config.LevelOK, "storage", "it takes files", "")}
	if err := c.Storage.Health().Err(); err != nil {
		list = []config.Finding{finding(config.LevelError, "storage", err.Error(), "the hub gives out no jobs until the storage takes files")}
	}
	if err := c.Bond.Err(); err != nil {
		list = append(list, finding(config.LevelError, "storage", err.Error()+": nothing is deleted from it", retention.AdviceForStrangers))
	}
	for _, d := range c.Disks {
		if free, size, _ := d.Space(); d.Scarce() {
			list = append(list, finding(
				config.LevelWarning, "disk", fmt.Sprintf("the disk of the %s folder has %s left of %s", d.Folder(), humanize.IBytes(free), humanize.IBytes(size)),
				"make room, or bound what is kept with history { age ... }",
			))
		}
	}
	return list
}

// keys reports records among the API keys in Redis that are not API keys.
func (c *Checkup) keys() []config.Finding {
	refused := c.Keys.Refused()
	if len(refused) == 0 {
		return nil
	}
	var names []string
	for _, r := range refused[:min(len(refused), maxNamed)] {
		names = append(names, strconv.Quote(r.Name)+" ("+r.Why+")")
	}
	return []config.Finding{finding(
		config.LevelWarning, "keys", fmt.Sprintf("%d records among the API keys in Redis are refused: %s", len(refused), strings.Join(names, ", ")),
		"if a hub of an older version made them, revoke them and make them again; if none did, somebody else can write to Redis",
	)}
}

// tokens reports records among the tokens of machines in Redis that are not tokens.
func (c *Checkup) tokens(ctx context.Context) []config.Finding {
	names, err := c.Machines.Refused(ctx)
	if err != nil || len(names) == 0 {
		return nil // whatever keeps Redis from answering has already been reported
	}
	return []config.Finding{finding(
		config.LevelWarning, "keys", fmt.Sprintf("%d records among the tokens of machines in Redis are refused: %s", len(names), strings.Join(names[:min(len(names), maxNamed)], ", ")),
		"if a hub of an older version made them, make them again with comfyhub token add; if none did, somebody else can write to Redis",
	)}
}

// names reports the names in secrets_to and api_only that nobody has.
func (c *Checkup) names() (list []config.Finding) {
	instances := c.Fleet.Instances()
	for _, name := range c.Settings().SecretsTo {
		named := func(i fleet.Instance) bool { return dispatch.Names(name, i) }
		if len(list) < maxFindings && !slices.ContainsFunc(instances, named) {
			do := "until there is one, prompts that need their API key may wait or be refused"
			if n := slices.IndexFunc(instances, func(i fleet.Instance) bool { return i.Name == name }); n >= 0 {
				do = "name its agent, " + instances[n].Agent + ", in place of the instance"
			}
			list = append(list, finding(
				config.LevelWarning, "secrets", "secrets_to names "+name+", and neither an agent nor an instance without one has that name", do,
			))
		}
	}
	for _, name := range c.Settings().APIOnly {
		named := func(i fleet.Instance) bool { return schedule.Matches(name, i.Name) }
		if len(list) < maxFindings && !slices.ContainsFunc(instances, named) {
			list = append(list, finding(
				config.LevelWarning, "api_only", "api_only names "+name+", and no instance has that name", "until there is one, prompts for paid services hold a GPU",
			))
		}
	}
	return list
}

// page reports where the web UI comes from.
func (c *Checkup) page() []config.Finding {
	w := c.Pages.Where()
	switch {
	case w.From == "folder":
		return []config.Finding{finding(config.LevelOK, "web UI", "comes from the folder "+w.Name, "")}
	case w.From == "instance":
		return []config.Finding{finding(config.LevelOK, "web UI", "comes from "+w.Name, "")}
	case len(c.Connected()) == 0:
		return nil
	case w.Name == "":
		return []config.Finding{finding(
			config.LevelWarning, "web UI", "comes from nowhere: no connected instance may serve it",
			"name one with primary in the Caddyfile (an instance behind a tunnel serves it only if it is named), or give the hub a copy with frontend",
		)}
	default:
		return []config.Finding{finding(
			config.LevelWarning, "web UI", "comes from "+w.Name+", which is not connected",
			"bring it back, name another one with primary in the Caddyfile, give the hub a copy of the web UI with frontend, or forget an agent that is gone for good",
		)}
	}
}

func (c *Checkup) gossip() []config.Finding {
	if c.Gossip == "" {
		return []config.Finding{finding(config.LevelNote, "gossip", "there is no gossip key: only agents on this machine can join", "set COMFYHUB_GOSSIP_KEY for a fleet of several machines")}
	}
	list := []config.Finding{finding(config.LevelOK, "gossip", "agents with the gossip key can join at "+c.Gossip, "")}
	for _, m := range c.Members() {
		if m.TrustsGroup && len(list) <= maxFindings {
			list = append(list, finding(config.LevelWarning, "gossip", "the agent "+m.Name+" is older than this hub: it obeys every machine that has the gossip key", "upgrade it"))
		}
	}
	return list
}

// instances reports those that take no jobs although nobody told them not to.
func (c *Checkup) instances() []config.Finding {
	var list []config.Finding
	working := 0
	for _, i := range c.Fleet.Instances() {
		up := i.State != fleet.Offline && i.State != fleet.Sick && !i.Report.DiskFull
		switch {
		case up && c.Clients.ByName(i.Name) != nil:
			working++
		case len(list) >= maxFindings:
		case up:
			list = append(list, finding(config.LevelWarning, "instances", i.Name+" is up, but this hub has no connection to it", "look at the log of its agent: it says so if it refuses this hub; just after a start, look again"))
		default:
			list = append(list, finding(config.LevelWarning, "instances", i.Name+" is "+string(i.State)+": "+i.Reason, adviceFor(i)))
		}
	}
	switch {
	case working == 0:
		list = append(list, finding(config.LevelError, "instances", "no instance can run anything", "connect one: see docs/instances.md"))
	case len(list) == 0 && working == 1:
		list = append(list, finding(config.LevelOK, "instances", "the only instance is healthy", ""))
	case len(list) == 0:
		list = append(list, finding(config.LevelOK, "instances", "all "+strconv.Itoa(working)+" instances are healthy", ""))
	}
	return list
}

// adviceFor says what to do about an instance that takes no jobs.
func adviceFor(i fleet.Instance) string {
	switch {
	case i.Aside:
		return "look at its log and its GPU, and restart its ComfyUI; once that is mended: comfyhub resume"
	case i.State == fleet.Sick:
		return "restart its ComfyUI; with --restart-command its agent does"
	case i.Left:
		return "start its agent again, or take it from the list: comfyhub forget"
	case i.State != fleet.Offline && i.Report.DiskFull:
		return "make room on the disk of its output and temporary files; with --output-dir its agent deletes what the hub has copied"
	case i.Agent == "":
		return "start it, or take its line out of the Caddyfile"
	}
	return "look at the log of its agent, and whether the hub reaches ports 7946 and 7947 there"
}

// differences reports what some ComfyUI servers have and others do not.
func (c *Checkup) differences() []config.Finding {
	infos, versions := map[string]*catalog.Info{}, map[string][]string{}
	known := c.Infos()
	for _, i := range c.Fleet.Instances() {
		if info := known[i.Name]; info != nil && i.State != fleet.Offline && i.Kind == fleet.KindComfyUI {
			infos[i.Name] = info
			versions[i.Report.Version] = append(versions[i.Report.Version], i.Name)
		}
	}
	var list []config.Finding
	if len(versions) > 1 {
		var parts []string
		for version, names := range versions {
			parts = append(parts, version+" on "+fleet.Few(names))
		}
		slices.Sort(parts)
		list = append(list, finding(config.LevelWarning, "versions", "ComfyUI differs: "+strings.Join(parts, "; "), "update the older ones: prompts for newer nodes do not run there"))
	}
	return append(list, findingsOf(catalog.Differences(infos), len(infos))...)
}

// findingsOf turns differences into findings: everything that the same servers lack is one.
func findingsOf(all []catalog.Difference, servers int) []config.Finding {
	type group struct{ kind, of, lack string }
	var order []group
	names, first := map[group][]string{}, map[group]catalog.Difference{}
	for _, d := range all {
		g := group{kind: d.Kind, lack: strings.Join(d.Lack, "\x00")}
		if d.Kind == catalog.DifferentClass {
			g.of = d.Of
		}
		if _, met := names[g]; !met {
			order, first[g] = append(order, g), d
		}
		names[g] = append(names[g], d.Name)
	}
	var list []config.Finding
	for n, g := range order {
		d := first[g]
		where := fmt.Sprintf(" on %d of %d instances, not on %s", len(d.Have), servers, fleet.Few(d.Lack))
		what := fleet.Few(names[g])
		be := " is"
		if len(names[g]) > 1 {
			be = " are"
		}
		if n == maxFindings {
			return append(list, finding(config.LevelNote, "nodes", fmt.Sprintf("and %d more differences", len(order)-n), ""))
		}
		switch d.Kind {
		case catalog.DifferentPackage:
			list = append(list, finding(config.LevelNote, "nodes", what+be+where, "install it there, if prompts that need it should run there too"))
		case catalog.DifferentClass:
			list = append(list, finding(config.LevelWarning, "nodes", "of "+d.Of+", "+what+be+where, "bring "+d.Of+" to the same version everywhere"))
		case catalog.DifferentFile:
			list = append(list, finding(config.LevelNote, "models", what+be+where, "copy them there, if prompts that need them should run there too"))
		}
	}
	return list
}
