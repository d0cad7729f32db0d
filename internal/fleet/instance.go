package fleet

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// State says what an instance can be used for.
type State string

// The states, from the best to the worst.
const (
	// Idle instances can take a job.
	Idle State = "idle"
	// Busy instances are running a hub's job.
	Busy State = "busy"
	// Foreign instances are running something that no hub sent, or another program
	// uses their GPU. They are left alone.
	Foreign State = "foreign"
	// Draining instances finish their run and get no other.
	Draining State = "draining"
	// Sick instances answer but do not work.
	Sick State = "sick"
	// Offline instances cannot be reached, or nothing has reported them recently.
	Offline State = "offline"
)

// States returns all states, from the best to the worst.
func States() []State { return []State{Idle, Busy, Foreign, Draining, Sick, Offline} }

// Instance is one instance in a snapshot.
type Instance struct {
	Name  string
	State State
	// Reason says in plain words why the instance takes no job; empty if it does,
	// or is merely busy.
	Reason string
	// URL is where the hub reaches the instance.
	URL  string
	Kind string
	// Agent is the agent's name, empty for a static instance; Key is its public
	// key, empty if it has none.
	Agent string
	Key   string
	// Direct means that URL is the instance's own address. A refused connection
	// then means that the instance's process is dead; otherwise it means only that
	// its agent is.
	Direct bool
	// Running is the prompt_id of the hub's job there, as the client knows it; for
	// other prompts, the instance's own id; empty if nothing runs.
	Running string
	// Report is what was last observed.
	Report InstanceReport
	// LastSeen is when Report arrived; zero before the first.
	LastSeen time.Time
	// Drained means that an operator drains the instance.
	Drained bool
	// Aside means that it is Sick because its runs come to nothing. It may get single jobs
	// all the same, to see whether that is over.
	Aside bool
	// Reserved are the tenants who alone may use the instance, none if all may. The hub's
	// settings have them: a registry leaves this empty.
	Reserved []string
	// Left means that the agent has said that it leaves, and nothing has reported the
	// instance since.
	Left bool
}

// Deliberate reports whether a process of the instance that has ended was ended on
// purpose, as far as is known: an operator was draining it, its agent was stopping,
// somebody had asked for a restart, or a slot of an endpoint gives a job back. boot is the report's Boot from before, 0 if that is
// not known.
func (i Instance) Deliberate(boot int64) bool {
	return i.Kind == KindOverflow || i.Drained || i.Report.Draining || i.Report.Restarting || i.Report.Restarted && i.Report.Boot != boot
}

// Tunnelled reports whether the instance is behind a tunnel that a token has opened.
func (i Instance) Tunnelled() bool { return strings.HasPrefix(i.URL, TunnelScheme+":") }

// BootID tells one life of the instance's process from the next, as a short text.
func (i Instance) BootID() string { return strconv.FormatInt(i.Report.Boot, 36) }

// Reported reports whether the instance's agent is present and has reported it within
// the last 20 s.
func (i Instance) Reported() bool {
	return i.Agent != "" && i.State != Offline && time.Since(i.LastSeen) <= staleAfter
}

// Has reports whether the instance's agent said within the last 20 s that it runs a
// job of the hubs.
func (i Instance) Has(job string) bool {
	return job != "" && i.Report.Job == job && i.Reported()
}

// record is what the registry keeps of one instance.
type record struct {
	report   InstanceReport
	agent    string // empty for a static one
	key      string // of the agent
	namedBy  int64  // the boot of the agent that last reported it; 0 if it was remembered
	static   bool
	seen     time.Time
	running  string // the hub's own run
	draining bool
	sick     string // why, empty when well
	broken   bool   // sick until its process restarts
	aside    string // what speaks against it, empty for nothing
	silent   bool   // it does not answer the hub
	// orphaned means that the agent has left, or has started again without it, and nothing
	// has reported the instance since.
	orphaned bool
	// left means that the agent has said so itself.
	left bool
}

// staleAfter is how long an instance is believed to be as last seen. Agents repeat
// their reports every few seconds, and a hub its own observations.
const staleAfter = 20 * time.Second

func (r *record) snapshot(now time.Time) Instance {
	i := Instance{
		Name: r.report.Name, URL: r.report.URL, Kind: r.report.Kind, Agent: r.agent, Key: r.key,
		Direct: r.report.Direct || r.agent == "", Running: r.running, Report: r.report, LastSeen: r.seen, Drained: r.draining, Left: r.orphaned && r.left,
	}
	if i.Kind == "" {
		i.Kind = KindComfyUI
	}
	if i.Running == "" {
		i.Running = r.report.Running
	}
	i.State, i.Reason = r.state(now)
	i.Aside = i.State == Sick && r.sick == ""
	return i
}

// state is the one place that decides the state of an instance.
func (r *record) state(now time.Time) (State, string) {
	switch {
	case r.seen.IsZero():
		return Offline, "not reached yet"
	case r.orphaned && r.left:
		return Offline, "its agent has left"
	case r.orphaned:
		return Offline, "its agent is gone without a word: it has crashed, or its machine or the network is down"
	case !r.report.Up:
		return Offline, r.report.Reason
	case r.agent != "" && r.running == "" && now.Sub(r.seen) > staleAfter:
		return Offline, fmt.Sprintf("no report from its agent for %s", staleAfter)
	case r.sick != "":
		return Sick, r.sick
	case r.draining:
		return Draining, "draining"
	case r.report.Draining:
		return Draining, "its agent stops"
	case r.report.Restarting:
		return Draining, "it is about to restart"
	case r.report.DiskFull:
		return Draining, "its disk is full"
	case r.aside != "":
		return Sick, r.aside
	case r.report.Foreign > 0:
		return Foreign, fmt.Sprintf("prompts of others: %d", r.report.Foreign)
	case r.report.Load != "":
		return Foreign, r.report.Load
	case r.running != "" || r.report.Queue > 0:
		return Busy, ""
	case r.silent:
		return Offline, "no answer in time"
	}
	return Idle, ""
}

// StaticName returns the name of an instance without an agent: host and port of its
// address.
func StaticName(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("instance address: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("instance address %q: want http://host:port or https://host:port", u.Redacted())
	}
	return u.Host + strings.TrimRight(u.EscapedPath(), "/"), nil
}
