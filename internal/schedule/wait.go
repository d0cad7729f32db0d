package schedule

import (
	"container/heap"
	"time"
)

// exactly bounds the jobs that Wait hands out one by one.
const exactly = 512

// Wait tells when a job starts that has ahead jobs before it, each of which takes about each: the
// instances that can run it become free one after the other, and each job goes to the first free
// one. False means that there is no such instance. With more than 512 jobs ahead, all but 512 of
// them count as spread evenly over the instances, which is off by at most one run.
//
// It is not exact: jobs ahead count as able to run on the same instances, and each counts with
// their mean.
func Wait(free []time.Duration, ahead int, each time.Duration) (time.Duration, bool) {
	if len(free) == 0 {
		return 0, false
	}
	h := make(soonest, 0, len(free))
	for _, f := range free {
		h = append(h, max(f, 0))
	}
	heap.Init(&h)
	for range min(ahead, exactly) {
		h[0] += each
		heap.Fix(&h, 0)
	}
	rounds := float64(max(ahead-exactly, 0) / len(h))
	return time.Duration(min(float64(h[0])+rounds*float64(each), float64(maxRan))), true
}

type soonest []time.Duration

func (s soonest) Len() int           { return len(s) }
func (s soonest) Less(i, j int) bool { return s[i] < s[j] }
func (s soonest) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *soonest) Push(any)          {} // its length does not change
func (s *soonest) Pop() any          { return nil }
