package job

// Band says before whom a job goes, whatever its tenant and its priority.
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

// bands are all of them, the highest first.
var bands = [...]Band{Interactive, Normal, Bulk}

// ParseBand reads the name of a band.
func ParseBand(name string) (b Band, ok bool) {
	for _, b := range bands {
		if string(b) == name {
			return b, true
		}
	}
	return Normal, false
}

// Mark is what the ranks of the band's jobs begin with, so that they sort by band.
func (b Band) Mark() string {
	switch b {
	case Interactive:
		return "+"
	case Bulk:
		return "~"
	case Normal:
	}
	return ""
}

// Below reports whether the band is lower than another one.
func (b Band) Below(other Band) bool { return b.level() > other.level() }

func (b Band) level() int {
	switch b {
	case Interactive:
		return 0
	case Bulk:
		return 2
	case Normal:
	}
	return 1
}

// Band returns the job's band, as its rank has it. With the order `fifo` all are normal.
func (j Job) Band() Band {
	for _, b := range bands {
		if mark := b.Mark(); mark != "" && len(j.Rank) > 0 && j.Rank[:1] == mark {
			return b
		}
	}
	return Normal
}
