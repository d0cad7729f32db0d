package schedule

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// spentMark begins the stored names of pairs whose text says where the time of their runs went.
	spentMark = "spent."
	// spentClasses bounds the node classes that are kept of a run: those that took longest.
	spentClasses = 8
	// maxClassName bounds the name of a node class, in bytes; of a longer one nothing is kept.
	maxClassName = 100
)

// Spent is where the time of one run went, by node class.
type Spent map[string]time.Duration

// Encode returns the stored form, which has no spaces: of the classes that took longest, the
// milliseconds. It is empty if there are none.
func (s Spent) Encode() string {
	kept := url.Values{}
	for _, class := range s.longest() {
		if ms := s[class].Milliseconds(); ms > 0 && len(class) <= maxClassName && len(kept) < spentClasses {
			kept.Set(class, strconv.FormatInt(ms, 10))
		}
	}
	return kept.Encode()
}

// longest returns the classes, that which took longest first.
func (s Spent) longest() []string {
	return slices.SortedFunc(maps.Keys(s), func(a, b string) int { return cmp.Or(cmp.Compare(s[b], s[a]), strings.Compare(a, b)) })
}

// Done returns the share of the work of a graph that a run did which had the results of some nodes
// already, if the time of all goes where s says; 1 if s says nothing about them.
func (s Spent) Done(graph *pyjson.Object, cached []string) float64 {
	had := map[string]bool{}
	for _, id := range cached {
		had[id] = true
	}
	all, ran := map[string]float64{}, map[string]float64{}
	for id := range graph.All() {
		class, steps := graph.Object(id).String("class_type"), max(number(nil, graph.Object(id).Object("inputs"), "steps"), 1)
		all[class] += steps
		if !had[id] {
			ran[class] += steps
		}
	}
	var whole, done float64
	for class, took := range s {
		if all[class] > 0 {
			whole += took.Seconds()
			done += took.Seconds() * ran[class] / all[class]
		}
	}
	if whole == 0 {
		return 1
	}
	return done / whole
}

// DecodeSpents reads runs in their stored form, separated by spaces, and skips what it cannot read:
// another version may have written it.
func DecodeSpents(text string) []Spent {
	var out []Spent
	for part := range strings.FieldsSeq(text) {
		kept, err := url.ParseQuery(part)
		if err != nil || len(kept) > spentClasses {
			continue
		}
		s := Spent{}
		for class := range kept {
			ms, err := strconv.ParseInt(kept.Get(class), 10, 64)
			if err == nil && ms > 0 && ms <= maxRan.Milliseconds() && len(class) <= maxClassName {
				s[class] = time.Duration(ms) * time.Millisecond
			}
		}
		if len(s) > 0 {
			out = append(out, s)
		}
	}
	return out[max(0, len(out)-keptSamples):]
}

// SpentField returns the stored name for where the time of a pair's runs went.
func SpentField(p Pair) string { return spentMark + p.Field() }

// ParseSpentField reads what [SpentField] returned; false for any other name.
func ParseSpentField(field string) (Pair, bool) {
	rest, ok := strings.CutPrefix(field, spentMark)
	if !ok {
		return Pair{}, false
	}
	return ParsePair(rest)
}

// Spending knows where the time of runs goes, by structure and GPU type. It is safe for concurrent
// use. The zero value knows nothing and is ready to use.
type Spending struct{ lastRuns[Spent] }

// Add learns from one run.
func (l *Spending) Add(p Pair, s Spent) { l.add(p, s) }

// Of returns the mean of the last runs of a structure on a GPU type, or on any if there was none on
// that, and of how many runs. least has for each class the shortest time in a run that had it.
func (l *Spending) Of(s Structure, gpu string) (mean, least Spent, runs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.known[Pair{s.Key, s.Kind, gpu}]
	if len(known) == 0 {
		for p, spent := range l.known {
			if p.Structure == s.Key && p.Kind == s.Kind {
				known = append(known, spent...)
			}
		}
	}
	mean, least = Spent{}, Spent{}
	for _, run := range known {
		for class, took := range run {
			mean[class] += took
			if shortest, has := least[class]; !has || took < shortest {
				least[class] = took
			}
		}
	}
	for class := range mean {
		mean[class] /= time.Duration(len(known))
	}
	return mean, least, len(known)
}
