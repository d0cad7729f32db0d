package split

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Divide says which outputs each instance makes, those that take longest first; none if one instance
// had better make all. spent is how long the nodes of each class take together, and loads what each
// of the other instances needs to load its models, that which needs least first. Several are worth
// it if the time that they save is worth at least that much, and more than what is done twice.
func (b Branches) Divide(spent map[string]time.Duration, loads []time.Duration, worth time.Duration) []Outputs {
	c := b.costs(spent)
	whole := c.of(b.all())
	var best []Outputs
	shortest := whole
	for k := 2; k <= min(len(b.units), len(loads)+1, MaxParts); k++ {
		sets := c.spread(b.units, k)
		var longest, sum time.Duration
		for n, set := range sets {
			takes := c.of(set)
			if n > 0 {
				takes += loads[n-1]
			}
			longest, sum = max(longest, takes), sum+takes
		}
		saved, twice := whole-longest, sum-whole
		if len(sets) > 1 && saved >= worth && saved > twice && longest < shortest {
			best, shortest = sets, longest
		}
	}
	return best
}

// costs are how long nodes take together, each by the outputs that need them.
type costs []cost

type cost struct {
	by   Outputs
	took time.Duration
}

// costs gives each node its share of what its class takes: samplers by their steps, others alike.
func (b Branches) costs(spent map[string]time.Duration) costs {
	weights := map[string]float64{}
	for id := range b.needed {
		weights[b.nodes.Object(id).String("class_type")] += b.weight(id)
	}
	sums := map[Outputs]time.Duration{}
	for id, by := range b.needed {
		class := b.nodes.Object(id).String("class_type")
		sums[by] += time.Duration(float64(spent[class]) * b.weight(id) / weights[class])
	}
	var c costs
	for by, took := range sums {
		if took > 0 {
			c = append(c, cost{by, took})
		}
	}
	return c
}

// weight is how much work a node is, compared with others of its class.
func (b Branches) weight(id string) float64 {
	v, _ := b.nodes.Object(id).Object("inputs").Get("steps")
	literal, _ := v.(pyjson.Number)
	steps, err := strconv.ParseFloat(string(literal), 64)
	if err != nil || math.IsNaN(steps) {
		return 1
	}
	return min(max(steps, 1), maxSteps)
}

// maxSteps is the most steps that ComfyUI's samplers take.
const maxSteps = 10000

// of is how long a set of outputs takes.
func (c costs) of(set Outputs) (sum time.Duration) {
	for _, one := range c {
		if one.by&set != 0 {
			sum += one.took
		}
	}
	return sum
}

// spread puts units into at most k sets that take about as long as each other, the longest unit
// first, each where the longest set stays shortest and then where it shares most. The sets come
// longest first.
func (c costs) spread(units []Outputs, k int) []Outputs {
	byCost := func(x, y Outputs) int { return cmp.Or(cmp.Compare(c.of(y), c.of(x)), x.first()-y.first()) }
	sets := make([]Outputs, k)
	for _, unit := range slices.SortedFunc(slices.Values(units), byCost) {
		longest := time.Duration(0)
		for _, set := range sets {
			longest = max(longest, c.of(set))
		}
		place := func(set Outputs) (makes, adds time.Duration) {
			with := c.of(set | unit)
			return max(longest, with), with - c.of(set)
		}
		at := 0
		for n := range sets {
			makes, adds := place(sets[n])
			best, least := place(sets[at])
			if cmp.Or(cmp.Compare(makes, best), cmp.Compare(adds, least)) < 0 {
				at = n
			}
		}
		sets[at] |= unit
	}
	sets = slices.DeleteFunc(sets, func(set Outputs) bool { return set == 0 })
	slices.SortFunc(sets, byCost)
	return sets
}
