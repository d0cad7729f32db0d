package job

import (
	"fmt"
	"math"
)

// MinPriority and MaxPriority bound a job's priority.
const (
	MinPriority = -100
	MaxPriority = 100
)

// RankPrefix is the part of a rank that is known before the queue has given
// the job its sequence number, behind the mark of its band: priority (higher first), then
// ComfyUI's number (smaller first). Its byte order is the order of execution. The queue
// appends the sequence number, so that equals run in order of arrival.
func RankPrefix(priority int, number float64) string {
	priority = min(max(priority, MinPriority), MaxPriority)
	return fmt.Sprintf("%03d:%016x:", MaxPriority-priority, sortable(number))
}

// InFront reports whether the job has a place before 0: it was posted to the front, or
// moved there.
func (j Job) InFront() bool {
	number := len(j.Band().Mark()) + len("100:") // where it begins; a positive one has the highest bit
	return len(j.Rank) > number && j.Rank[number] < '8'
}

// sortable maps a float to an integer of the same order. NaN, which ComfyUI
// accepts as a number, has no order; it goes last.
func sortable(f float64) uint64 {
	if math.IsNaN(f) {
		return math.MaxUint64
	}
	if f == 0 {
		f = 0 // -0 and 0 are the same place in the queue
	}
	bits := math.Float64bits(f)
	if bits>>63 == 1 {
		return ^bits
	}
	return bits | 1<<63
}
