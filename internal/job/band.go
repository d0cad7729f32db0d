package job

import (
	"slices"
	"strings"
)

// Band says which jobs a job goes before, whatever its tenant and its priority.
type Band string

// The bands, the highest first.
const (
	// Interactive jobs go before all others.
	Interactive Band = "interactive"
	// Normal jobs are all that nobody has put elsewhere.
	Normal Band = "normal"
	// Bulk jobs go behind all others.
	Bulk Band = "bulk"
)

// bands are all of them, the highest first, and marks what the ranks of their jobs begin
// with, so that they sort by band. The rank of a normal job begins with a digit.
var (
	bands = [...]Band{Interactive, Normal, Bulk}
	marks = [...]string{"+", "", "~"}
)

// ParseBand reads the name of a band.
func ParseBand(name string) (b Band, ok bool) {
	if slices.Contains(bands[:], Band(name)) {
		return Band(name), true
	}
	return Normal, false
}

// Mark is what the ranks of the band's jobs begin with.
func (b Band) Mark() string { return marks[b.level()] }

// Below reports whether the band is lower than another one.
func (b Band) Below(other Band) bool { return b.level() > other.level() }

// level is the band's place among all; a band without a name is the normal one.
func (b Band) level() int {
	if n := slices.Index(bands[:], b); n >= 0 {
		return n
	}
	return Normal.level()
}

// Band returns the job's band, as its rank has it. With the order `fifo` all are normal.
func (j Job) Band() Band {
	for n, mark := range marks {
		if mark != "" && strings.HasPrefix(j.Rank, mark) {
			return bands[n]
		}
	}
	return Normal
}
