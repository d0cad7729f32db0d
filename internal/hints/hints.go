package hints

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// MaxHints is how many hints there are for a job at most.
const MaxHints = 3

// The names of hints, by which programs tell them apart and people dismiss them.
const (
	ReserveModels = "reserve_models"
	FewerSteps    = "fewer_steps"
	NeedsNoGPU    = "needs_no_gpu"
)

const (
	// worthSaying is the smallest saving that a hint is given for, and worthShare its share of the run.
	worthSaying = time.Second
	worthShare  = 0.1
	// enoughRuns is how many runs must have been measured.
	enoughRuns = 3
	// fewSteps is how many steps models need that were distilled for few.
	fewSteps = 8
)

// distilled are words in the names of models that were made to need few steps.
var distilled = []string{"lightning", "turbo", "hyper-sd", "hyper_sd", "lcm", "dmd2", "schnell", "lightx2v", "4step", "8step", "4-step", "8-step"}

// Measured is what was measured of jobs like one.
type Measured struct {
	// Classes are the classes that took longest, on average of Runs runs.
	Classes []Spent
	Runs    int
	// Extra is how much longer a run takes that has to load its models, as Cold of the last Ran runs
	// had to.
	Extra     time.Duration
	Cold, Ran int
}

// Spent is how long the nodes of a class took in a run, together.
type Spent struct {
	Class string
	Phase Phase
	Took  time.Duration
}

// Hint is a piece of advice.
type Hint struct {
	// Name is one of the names of hints.
	Name string
	// Text is one sentence, with what was measured.
	Text string
	// Saves is how much shorter a run would be, on average.
	Saves time.Duration
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

// Of returns what would make jobs like one with this graph shorter, that which saves most first.
// Only what the figures show is said.
func Of(graph *pyjson.Object, m Measured) []Hint {
	if m.Runs < enoughRuns {
		return nil
	}
	var out []Hint
	for _, rule := range []func(*pyjson.Object, Measured) (Hint, bool){reserve, steps, noGPU} {
		if h, ok := rule(graph, m); ok && h.Saves >= worthSaying && float64(h.Saves) >= worthShare*float64(m.total()) {
			out = append(out, h)
		}
	}
	slices.SortStableFunc(out, func(a, b Hint) int { return cmp.Compare(b.Saves, a.Saves) })
	return out[:min(len(out), MaxHints)]
}

// reserve is for jobs whose models are loaded again and again.
func reserve(graph *pyjson.Object, m Measured) (Hint, bool) {
	models := modelsOf(graph)
	if m.Cold < 2 || len(models) == 0 || m.Ran == 0 {
		return Hint{}, false
	}
	return Hint{
		Name:  ReserveModels,
		Saves: m.Extra * time.Duration(m.Cold) / time.Duration(m.Ran),
		Text: fmt.Sprintf("%d of the last %d runs had to load %s first, which took %s: reserve an instance for it.",
			m.Cold, m.Ran, models[0], seconds(m.Extra)),
	}, true
}

// steps is for models that need few steps and are given many.
func steps(graph *pyjson.Object, m Measured) (Hint, bool) {
	model, most := "", int64(0)
	for _, name := range modelsOf(graph) {
		if slices.ContainsFunc(distilled, func(word string) bool { return strings.Contains(strings.ToLower(name), word) }) {
			model = name
			break
		}
	}
	for _, inputs := range inputsOf(graph) {
		if v, _ := inputs.Get("steps"); v != nil {
			if n, ok := v.(pyjson.Number); ok {
				count, _ := strconv.ParseInt(string(n), 10, 64)
				most = max(most, count)
			}
		}
	}
	if model == "" || most < 2*fewSteps {
		return Hint{}, false
	}
	return Hint{
		Name:  FewerSteps,
		Saves: m.in(Sampling) * time.Duration(most-fewSteps) / time.Duration(most),
		Text:  fmt.Sprintf("%d steps with %s, which is made for few: %d would do.", most, model, fewSteps),
	}, true
}

// noGPU is for jobs that hold a GPU while somebody else's service works.
func noGPU(_ *pyjson.Object, m Measured) (Hint, bool) {
	waits := m.in(Service)
	if 2*waits < m.total() {
		return Hint{}, false
	}
	return Hint{
		Name:  NeedsNoGPU,
		Saves: waits,
		Text:  fmt.Sprintf("%s of %s is waiting for a service: an instance without a GPU would do.", seconds(waits), seconds(m.total())),
	}, true
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// inputsOf returns the inputs of all nodes.
func inputsOf(graph *pyjson.Object) (all []*pyjson.Object) {
	for id := range graph.All() {
		all = append(all, graph.Object(id).Object("inputs"))
	}
	return all
}

// modelSuffixes end the names of model files.
var modelSuffixes = []string{".safetensors", ".ckpt", ".pt", ".pth", ".gguf", ".sft", ".bin"}

// modelsOf returns the names of the model files that a graph names, without folders and endings.
func modelsOf(graph *pyjson.Object) (names []string) {
	for _, inputs := range inputsOf(graph) {
		for key := range inputs.All() {
			name := inputs.String(key)
			for _, suffix := range modelSuffixes {
				if rest, ok := strings.CutSuffix(name, suffix); ok {
					names = append(names, rest[strings.LastIndexAny(rest, `/\`)+1:])
				}
			}
		}
	}
	return names
}
