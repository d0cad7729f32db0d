package schedule

import (
	"slices"
	"strings"
)

// Reservation keeps instances for the jobs of certain tenants.
type Reservation struct {
	// Instances is the name of an instance; each * in it stands for any text.
	Instances string
	// Tenants are those who may use the instances; at least one.
	Tenants []string
}

// Reservations are those of all instances. An instance that several of them name takes the jobs of
// all their tenants.
type Reservations []Reservation

// For returns the tenants an instance is reserved for, sorted; nil if it is for everybody.
func (rs Reservations) For(instance string) (tenants []string) {
	for _, r := range rs {
		if Matches(r.Instances, instance) {
			tenants = append(tenants, r.Tenants...)
		}
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// Matches reports whether a name matches a pattern in which * stands for any text.
func Matches(pattern, name string) bool {
	first, rest, any := strings.Cut(pattern, "*")
	name, ok := strings.CutPrefix(name, first)
	if !ok || !any {
		return ok && name == ""
	}
	parts := strings.Split(rest, "*")
	last := parts[len(parts)-1]
	for _, part := range parts[:len(parts)-1] {
		_, after, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = after
	}
	return strings.HasSuffix(name, last)
}

// MayUse reports whether an instance takes a tenant's jobs, given the tenants that it is reserved
// for; nil means that it is not reserved.
func MayUse(reserved []string, tenant string) bool {
	return reserved == nil || slices.Contains(reserved, tenant)
}
