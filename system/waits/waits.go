package waits

import (
	"testing"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
)

// options are what a figure is measured with.
type options struct {
	// seed decides when prompts arrive and how long they take.
	seed uint64
	// whole is for schedules of their full length.
	whole bool
}

// some is how many prompts a schedule has that has so many when it is whole.
func (o options) some(count int) int {
	if o.whole {
		return count
	}
	return count / 5
}

// measure measures one figure.
type measure func(t *testing.T, o options) figure.Figure

// named is a figure that can be asked for.
type named struct {
	name    string
	measure measure
	// long ones are left out unless they are asked for.
	long bool
}

func figures() []named {
	return []named{
		{"hol8", headOfLine(8, 600, 25), true},
		{"hol30", headOfLine(30, 2000, 200), true},
		{"pool4", pool, false},
		{"fifo8", firstIn(8, 600), false},
		{"affinity", affinity, true},
		{"fair", fair, true},
		{"interactive", interactive, true},
		{"eta", eta, true},
	}
}
