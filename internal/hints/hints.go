package hints

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// MaxHints is how many hints there are for a job at most.
const MaxHints = 3

// The names of hints, by which programs tell them apart and people dismiss them.
const (
	ReserveModels = "reserve_models"
	FewerSteps    = "fewer_steps"
	NeedsNoGPU    = "needs_no_gpu"
	SamePrompt    = "same_prompt"
	Downloads     = "downloads"
	UnseenPreview = "unseen_preview"
)

// Names are all of them.
func Names() []string {
	return []string{ReserveModels, FewerSteps, NeedsNoGPU, SamePrompt, Downloads, UnseenPreview}
}

const (
	// worthSaying is the smallest saving that a hint is given for, and worthShare its share of the run.
	worthSaying = time.Second
	worthShare  = 0.1
	// enoughRuns is how many runs must have been measured.
	enoughRuns = 3
	// fewSteps is how many steps models need that were distilled for few.
	fewSteps = 8
)

// Measured is what was measured of jobs like one.
type Measured struct {
	// Classes are the classes that took longest, on average of Runs runs.
	Classes []Spent
	Runs    int
	// Extra is how much longer a run takes that has to load its models, as Cold of the last Ran runs
	// had to.
	Extra     time.Duration
	Cold, Ran int
	// Tenants is how many have used the first model lately; 0 if whoever asks must not know.
	Tenants int
	// Equal is a job that has made the same already; nil if there is none.
	Equal *Equal
	// Unseen is how long it takes to make what only previews show that nobody has opened.
	Unseen time.Duration
}

// Spent is how long the nodes of a class took in a run, together.
type Spent struct {
	Class string
	Phase Phase
	Took  time.Duration
	// Least is how long they took in the shortest of the runs that had any.
	Least time.Duration
}

// Equal is a job that has made the same.
type Equal struct {
	ID string
	// Ago is when it ended, and Took how long it ran.
	Ago, Took time.Duration
}

// Hint is a piece of advice.
type Hint struct {
	// Name is one of the names of hints.
	Name string
	// Text is one sentence, with what was measured.
	Text string
	// Saves is how much shorter a run would be, on average.
	Saves time.Duration
	// Job is the id of the job that the hint is about; empty for none.
	Job string
}

// total is the time of all that was measured.
func (m Measured) total() (sum time.Duration) {
	for _, s := range m.Classes {
		sum += s.Took
	}
	return sum
}

// in is the time of one phase.
func (m Measured) in(p Phase) (sum time.Duration) {
	for _, s := range m.Classes {
		if s.Phase == p {
			sum += s.Took
		}
	}
	return sum
}

// Of returns what would make jobs like one with this graph shorter, that which saves most first,
// without the hints of some names. Only what the figures show is said.
func Of(g Graph, m Measured, without []string) []Hint {
	var out []Hint
	for _, rule := range []func(Graph, Measured) (Hint, bool){same, reserve, steps, noGPU, downloads, unseen} {
		h, ok := rule(g, m)
		if ok && h.Saves >= worthSaying && float64(h.Saves) >= worthShare*float64(m.total()) && !slices.Contains(without, h.Name) {
			out = append(out, h)
		}
	}
	slices.SortStableFunc(out, func(a, b Hint) int { return cmp.Compare(b.Saves, a.Saves) })
	return out[:min(len(out), MaxHints)]
}

// same is for prompts that have been made already.
func same(_ Graph, m Measured) (Hint, bool) {
	if m.Equal == nil {
		return Hint{}, false
	}
	return Hint{
		Name:  SamePrompt,
		Saves: m.Equal.Took,
		Job:   m.Equal.ID,
		Text:  fmt.Sprintf("The same was made %s ago: open that.", span(m.Equal.Ago)),
	}, true
}

// reserve is for jobs whose models are loaded again and again.
func reserve(g Graph, m Measured) (Hint, bool) {
	if m.Runs < enoughRuns || m.Cold < 2 || g.Model == "" || m.Ran == 0 {
		return Hint{}, false
	}
	text := fmt.Sprintf("%d of the last %d runs had to load %s first, which took %s: reserve an instance for it.", m.Cold, m.Ran, base(g.Model), seconds(m.Extra))
	if m.Tenants > 1 {
		text = fmt.Sprintf("%d of the last %d runs had to load %s first, which took %s; %d tenants use it: reserve an instance for it.",
			m.Cold, m.Ran, base(g.Model), seconds(m.Extra), m.Tenants)
	}
	return Hint{Name: ReserveModels, Saves: m.Extra * time.Duration(m.Cold) / time.Duration(m.Ran), Text: text}, true
}

// steps is for models that need few steps and are given many.
func steps(g Graph, m Measured) (Hint, bool) {
	if m.Runs < enoughRuns || g.distilled == "" || g.steps < 2*fewSteps {
		return Hint{}, false
	}
	return Hint{
		Name:  FewerSteps,
		Saves: m.in(Sampling) * time.Duration(g.steps-fewSteps) / time.Duration(g.steps),
		Text:  fmt.Sprintf("%d steps with %s, which is made for few: %d would do.", g.steps, base(g.distilled), fewSteps),
	}, true
}

// noGPU is for jobs that hold a GPU while somebody else's service works.
func noGPU(_ Graph, m Measured) (Hint, bool) {
	waits := m.in(Service)
	if m.Runs < enoughRuns || 2*waits < m.total() {
		return Hint{}, false
	}
	return Hint{
		Name:  NeedsNoGPU,
		Saves: waits,
		Text:  fmt.Sprintf("%s of %s is waiting for a service: an instance without a GPU would do.", seconds(waits), seconds(m.total())),
	}, true
}

// downloads is for nodes that fetch what an instance does not have: where the files are there
// already, they take as long as in the shortest run.
func downloads(_ Graph, m Measured) (Hint, bool) {
	if m.Runs < enoughRuns {
		return Hint{}, false
	}
	var most Spent
	for _, s := range m.Classes {
		if s.Phase == Downloading && s.Took-s.Least > most.Took-most.Least {
			most = s
		}
	}
	return Hint{
		Name:  Downloads,
		Saves: most.Took - most.Least,
		Text: fmt.Sprintf("%s downloads what an instance lacks, and takes %s instead of %s: put its files on the instances.",
			most.Class, seconds(most.Took), seconds(most.Least)),
	}, most.Class != ""
}

// unseen is for what is made for previews only.
func unseen(_ Graph, m Measured) (Hint, bool) {
	return Hint{
		Name:  UnseenPreview,
		Saves: m.Unseen,
		Text:  fmt.Sprintf("%s of %s is for previews that nobody has opened: leave them out.", seconds(m.Unseen), seconds(m.total())),
	}, m.Runs >= enoughRuns
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// span is a time in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f h", d.Hours())
}
