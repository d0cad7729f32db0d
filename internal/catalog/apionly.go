package catalog

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/job"
)

// ForAPIOnly returns the info of an instance that takes only prompts whose work a paid service does,
// or all. It is the same one if that is known already.
func ForAPIOnly(i *Info, only bool) *Info {
	if i == nil || i.apiOnly == only {
		return i
	}
	changed := *i
	changed.apiOnly = only
	return &changed
}

// TakesAPIOnly reports what [ForAPIOnly] was told.
func TakesAPIOnly(i *Info) bool { return i != nil && i.apiOnly }

// CallsOnly reports whether a paid service does the work of a job, as the instance describes its
// classes ("api_node"): the job has a node that calls one, and names no model file.
func CallsOnly(i *Info, r Requirements) bool {
	return !slices.ContainsFunc(r.Choices, func(c Choice) bool { return job.NamesModel(c.Value) }) &&
		slices.ContainsFunc(r.Classes, func(name string) bool {
			c, has := i.class(name)
			return has && c.api
		})
}
