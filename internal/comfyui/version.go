package comfyui

import (
	"cmp"
	"strconv"
	"strings"
)

// Version is the version of a ComfyUI server. The zero Version, of servers
// before August 2024 and of those that report something unreadable, is older
// than all others: nothing is taken for granted there.
type Version struct {
	Major, Minor, Patch int
	// Ahead counts the commits after that release, for servers that run from
	// a git checkout: "v0.0.8-57-g1b2c3d4".
	Ahead int
	// Text is what the server said.
	Text string
}

// ParseVersion reads comfyui_version of /system_stats: a release ("0.3.64",
// "v0.3.64", "0.3.64rc1+local") or the output of git describe.
func ParseVersion(s string) Version {
	v := Version{Text: s}
	rest := strings.TrimPrefix(strings.TrimSpace(s), "v")
	var numbers [3]int
	for i := range numbers {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.Atoi(rest[:digits])
		if err != nil {
			if i < 2 { // a bare commit hash such as "1b2c3d4" is no version
				return v
			}
			break
		}
		numbers[i] = n
		rest = rest[digits:]
		if i == 2 || !strings.HasPrefix(rest, ".") {
			if i == 0 {
				return v
			}
			break
		}
		rest = rest[1:]
	}
	v.Major, v.Minor, v.Patch = numbers[0], numbers[1], numbers[2]
	if parts := strings.Split(rest, "-"); len(parts) == 3 && strings.HasPrefix(parts[2], "g") {
		if n, err := strconv.Atoi(parts[1]); err == nil && n > 0 {
			v.Ahead = n
		}
	}
	return v
}

// String returns what the server said, or "unknown".
func (v Version) String() string {
	if v.Text == "" {
		return "unknown"
	}
	return v.Text
}

// Known reports whether the version could be read.
func (v Version) Known() bool { return v.Major|v.Minor|v.Patch|v.Ahead != 0 }

// Compare orders versions as cmp.Compare does.
func (v Version) Compare(w Version) int {
	return cmp.Or(
		cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor),
		cmp.Compare(v.Patch, w.Patch), cmp.Compare(v.Ahead, w.Ahead),
	)
}

// AtLeast reports whether v is that release or later.
func (v Version) AtLeast(major, minor, patch int) bool {
	return v.Compare(Version{Major: major, Minor: minor, Patch: patch}) >= 0
}

// HonoursPromptID reports whether the server uses the prompt_id it is given.
// Others choose their own: take it from the reply.
func (v Version) HonoursPromptID() bool { return v.AtLeast(0, 3, 45) }

// Targets reports whether the server knows partial_execution_targets. Others make all outputs of a
// graph.
func (v Version) Targets() bool { return v.AtLeast(0, 3, 48) }

// InterruptByID reports whether /interrupt looks at the prompt_id. Where it
// does not, every interrupt stops whatever runs.
func (v Version) InterruptByID() bool { return v.AtLeast(0, 3, 57) }

// Jobs reports whether the server has /api/jobs.
func (v Version) Jobs() bool { return v.AtLeast(0, 6, 0) }
