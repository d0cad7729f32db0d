package schedule

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	// needMark begins the stored names of pairs whose text says what their runs needed. Versions
	// that do not know it find no run in such a text.
	needMark = "vram."
	mebibyte = 1 << 20
	// maxNeed bounds a stored need, in MiB.
	maxNeed = 16 << 20
)

// Need is how much GPU memory one run took at its peak.
type Need struct {
	Work float64
	// Bytes is rounded up to a multiple of a MiB when stored.
	Bytes int64
}

// Needs knows how much GPU memory runs take, by structure and GPU type. It is safe for concurrent
// use. The zero value knows nothing and is ready to use.
type Needs struct{ lastRuns[Need] }

// Add learns from one run.
func (n *Needs) Add(p Pair, need Need) {
	if need.valid() {
		n.add(p, need)
	}
}

// Of returns how many bytes of GPU memory a run takes: three out of four runs of about its size
// took no more. It is 0 if nothing is known.
func (n *Needs) Of(s Structure, gpu string) int64 {
	var near, all []int64
	for _, need := range n.of(Pair{s.Key, s.Kind, gpu}) {
		all = append(all, need.Bytes)
		if need.Work <= 2*s.Work && s.Work <= 2*need.Work {
			near = append(near, need.Bytes)
		}
	}
	if len(near) == 0 {
		near = all
	}
	if len(near) == 0 {
		return 0
	}
	slices.Sort(near)
	return near[(3*len(near)+3)/4-1]
}

// NeedField returns the stored name for what the runs of a pair needed.
func NeedField(p Pair) string { return needMark + p.Field() }

// ParseNeedField reads what [NeedField] returned; false for any other name.
func ParseNeedField(field string) (Pair, bool) {
	rest, ok := strings.CutPrefix(field, needMark)
	if !ok {
		return Pair{}, false
	}
	return ParsePair(rest)
}

// Encode returns the stored form of a need.
func (n Need) Encode() string {
	return strconv.FormatFloat(n.Work, 'g', 6, 64) + "@" + strconv.FormatInt((n.Bytes+mebibyte-1)/mebibyte, 10)
}

// DecodeNeeds reads needs in their stored form, separated by spaces, and skips what it cannot read:
// another version may have written it.
func DecodeNeeds(text string) []Need {
	var out []Need
	for part := range strings.FieldsSeq(text) {
		before, after, _ := strings.Cut(part, "@")
		work, err := strconv.ParseFloat(before, 64)
		size, err2 := strconv.ParseInt(after, 10, 64)
		n := Need{Work: work, Bytes: min(max(size, 0), maxNeed) * mebibyte}
		if err == nil && err2 == nil && n.valid() {
			out = append(out, n)
		}
	}
	return out[max(0, len(out)-keptSamples):]
}

func (n Need) valid() bool {
	return n.Work >= 1e-3 && n.Work <= maxWork && !math.IsNaN(n.Work) && n.Bytes > 0 && n.Bytes <= maxNeed*mebibyte
}
