package workflow

import (
	"fmt"
	"math"
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// span is what a numeric input of a node takes.
type span struct {
	whole     bool
	low, high float64
}

// spanOf returns the span of an input; false if it is no number.
func spanOf(spec pyjson.Value) (span, bool) {
	list, _ := spec.(pyjson.Array)
	if len(list) == 0 {
		return span{}, false
	}
	kind, _ := list[0].(pyjson.String)
	if kind != "INT" && kind != "FLOAT" {
		return span{}, false
	}
	s := span{kind == "INT", math.Inf(-1), math.Inf(1)}
	if len(list) > 1 {
		options, _ := list[1].(*pyjson.Object)
		if n, ok := number(options, "min"); ok {
			s.low = n
		}
		if n, ok := number(options, "max"); ok {
			s.high = n
		}
	}
	return s, true
}

func number(o *pyjson.Object, key string) (float64, bool) {
	if o == nil {
		return 0, false
	}
	value, _ := o.Get(key)
	n, ok := value.(pyjson.Number)
	return n.Float64(), ok
}

func (s span) holds(n float64) bool { return n >= s.low && n <= s.high }

// outside says what a numeric input would not take: the value in the workflow, or one
// that a message may ask for. It is "" if there is no such thing.
func (c *Command) outside(at Slot, spec pyjson.Value) string {
	takes, ok := spanOf(spec)
	if !ok {
		return ""
	}
	is := func(r Role) bool { return slices.Contains(c.slots[r], at) }
	for _, limit := range []struct {
		role Role
		word string
		most float64
	}{
		{Seed, "max_seed", float64(c.Spec.MaxSeed)}, {Steps, "max_steps", float64(c.Spec.MaxSteps)}, {Count, "max_count", float64(c.Spec.MaxCount)},
	} {
		if is(limit.role) && limit.most >= 0 && !takes.holds(limit.most) {
			return fmt.Sprintf("%q takes %s; set %s to no more", at.Input, takes, limit.word)
		}
	}
	if is(Strength) && takes.whole {
		return fmt.Sprintf("%q takes whole numbers, but a strength is between 0 and 1", at.Input)
	}
	value, ok := c.graph.literal(at.Node, at.Input).(pyjson.Number)
	if ok && !is(Seed) && !takes.holds(value.Float64()) {
		return fmt.Sprintf("%q is %s, but takes %s", at.Input, value, takes)
	}
	return ""
}

func (s span) String() string {
	return fmt.Sprintf("%s to %s", PlainNumber(s.low), PlainNumber(s.high))
}

// PlainNumber writes a number as people do: whole ones without a point.
func PlainNumber(n float64) string {
	if n == math.Trunc(n) && math.Abs(n) < 1<<62 {
		return fmt.Sprint(int64(n))
	}
	return fmt.Sprint(n)
}
