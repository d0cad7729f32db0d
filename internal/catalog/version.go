package catalog

// Version is the ComfyUI version whose checks and error formats are emulated. A nil
// Version is older than every release.
type Version interface {
	// AtLeast reports whether it is that release or a later one.
	AtLeast(major, minor, patch int) bool
}

// behaviour is what changed in POST /prompt between versions.
type behaviour struct {
	// combos: options of ["COMBO", {...}] are checked.
	combos bool
	// missingType: missing_node_type replaces invalid_prompt.
	missingType bool
	// rewrites: old classes are replaced before validation, in a step that throws
	// for nodes and inputs that are not objects.
	rewrites bool
	// cycles: a cycle is reported as dependency_cycle.
	cycles bool
	// multiselect: a list of options is checked item by item, and a refusal
	// quotes values as Python's repr does.
	multiselect bool
}

func behaviourOf(v Version) behaviour {
	if v == nil {
		return behaviour{}
	}
	return behaviour{
		combos:      v.AtLeast(0, 8, 0),
		missingType: v.AtLeast(0, 12, 0),
		rewrites:    v.AtLeast(0, 14, 0),
		cycles:      v.AtLeast(0, 20, 0),
		multiselect: v.AtLeast(0, 21, 0),
	}
}
