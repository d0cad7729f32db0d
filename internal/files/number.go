package files

import (
	"regexp"
	"strconv"
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
