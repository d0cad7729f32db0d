package files

import (
	"math"
	"regexp"
	"strconv"
)

// byteRange is a part of a file.
type byteRange struct{ from, length int64 }

// oneRange is all that ComfyUI's server understands.
var oneRange = regexp.MustCompile(`^bytes=([0-9]*)-([0-9]*)$`)

// parseRange reads a Range header for a file of size bytes. It returns false for everything that is
// answered with 416: several ranges, other units, no numbers at all, ends before their start, and
// starts beyond the file. "-0" is the whole file, as it is there.
func parseRange(header string, size int64) (byteRange, bool) {
	m := oneRange.FindStringSubmatch(header)
	if m == nil || (m[1] == "" && m[2] == "") {
		return byteRange{}, false
	}
	first, last := number(m[1]), number(m[2])
	if m[1] == "" {
		first = max(size-last, 0)
		if last == 0 {
			first = 0
		}
		last = size - 1
	} else if m[2] == "" {
		last = size - 1
	} else if first > last {
		return byteRange{}, false
	}
	if first >= size {
		return byteRange{}, false
	}
	return byteRange{from: first, length: min(last, size-1) - first + 1}, true
}

// number reads digits; a number too large for an int64 is beyond any file.
func number(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil && digits != "" {
		return math.MaxInt64
	}
	return n
}
