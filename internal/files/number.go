package files

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/job"
)

// numbered is a name with a counter, as save nodes make them:
// ComfyUI_00001_.png, clip_00007.mp4, clip_00007-audio.mp4.
type numbered struct {
	prefix string // before the counter, without its underscore
	number int64
	width  int    // digits of the counter
	suffix string // after the counter
}

// counter finds the last group of five or more digits between an underscore and one of "_", "-",
// "." or the end. ComfyUI never writes fewer digits, and a script cannot count with more than 15.
var counter = regexp.MustCompile(`^(.*)_([0-9]{5,15})([-_.].*)?$`)

// parseNumbered takes apart a name with a counter; ok is false for others.
func parseNumbered(name string) (n numbered, ok bool) {
	m := counter.FindStringSubmatch(name)
	if m == nil {
		return numbered{}, false
	}
	number, err := strconv.ParseInt(m[2], 10, 64)
	if err != nil {
		return numbered{}, false
	}
	return numbered{prefix: m[1], number: number, width: len(m[2]), suffix: m[3]}, true
}

// String returns the name.
func (n numbered) String() string {
	return fmt.Sprintf("%s_%0*d%s", n.prefix, n.width, n.number, n.suffix)
}

// follow has the names of sources follow the highest of some names at the hub, those of each folder and
// prefix, in their order on the instance.
func follow(sources []Source, after []job.FileRef) {
	type series struct{ typ, dir, prefix string }
	of := func(f job.FileRef) (series, numbered, bool) {
		n, ok := parseNumbered(f.Filename)
		return series{f.Type, f.Subfolder, n.prefix}, n, ok
	}
	last, first := map[series]int64{}, map[series]int64{}
	for _, f := range after {
		if in, n, ok := of(f); ok {
			last[in] = max(last[in], n.number)
		}
	}
	for _, src := range sources {
		if in, n, ok := of(src.Ref()); ok {
			if least, has := first[in]; !has || n.number < least {
				first[in] = n.number
			}
		}
	}
	for k, src := range sources {
		in, n, ok := of(src.Ref())
		if top := last[in]; ok && top > 0 {
			n.number += top + 1 - first[in]
			sources[k].wish = n.String()
		}
	}
}
