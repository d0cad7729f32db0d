package scale

import (
	"crypto/rand"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Bounds of what can be configured.
const (
	MaxClasses = 32
	// MaxMachines is the largest Max of a class.
	MaxMachines = 1000
	// MaxJoins is the largest Joins of a class: what starts takes longer than that has failed.
	MaxJoins = 24 * time.Hour
)

// nameText is how many letters tell the names of machines apart.
const nameText = 10

// DefaultIdleAfter is how long a machine has nothing to do before it goes, unless its class says
// otherwise.
const DefaultIdleAfter = 5 * time.Minute

// Class is a kind of machine that comes and goes by need. Each machine is one instance.
type Class struct {
	// Name tells it from other classes.
	Name string
	// Instances are the names of its instances; each * in one stands for any text.
	Instances []string
	// Min and Max bound how many there are; Min may be 0.
	Min, Max int
	// IdleAfter is how long an instance has nothing to do before it goes.
	IdleAfter time.Duration
	// Price is what one costs an hour, and Budget what all of them may cost a day by UTC, in the
	// operator's money. 0 for unknown, and for no limit.
	Price, Budget float64
	// Joins is how long the token of a machine to be started is good. 0 if they get none.
	Joins time.Duration
	// Provider is told how many there should be. Nil if nobody is: what starts the machines reads
	// the number.
	Provider Provider
}

// Has reports whether an instance is of the class.
func (c Class) Has(instance string) bool {
	return slices.ContainsFunc(c.Instances, func(pattern string) bool { return schedule.Matches(pattern, instance) })
}

// newName is one for a machine to be started, empty if all its names are given.
func (c Class) newName() string {
	for _, pattern := range c.Instances {
		if before, after, found := strings.Cut(pattern, "*"); found {
			return before + strings.ToLower(rand.Text()[:nameText]) + strings.ReplaceAll(after, "*", "")
		}
	}
	return ""
}

// bounds are those of the class on a day on which so much has been spent.
func (c Class) bounds(spent float64) schedule.ScaleBounds {
	left := math.Inf(1)
	if c.Budget > 0 {
		left = max(c.Budget-spent, 0)
	}
	return schedule.ScaleBounds{Min: c.Min, Max: c.Max, IdleAfter: c.IdleAfter, Price: c.Price, Left: left}
}
