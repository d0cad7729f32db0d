package comfyui

import (
	"math"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Ran is the time from the start of the run to its end, by the clock of its server; zero if the entry does
// not say.
func (e Entry) Ran() time.Duration {
	var start, end int64
	for _, m := range e.Messages {
		v, _ := parseObject(m.Data).Get("timestamp")
		n, _ := v.(pyjson.Number)
		switch at, _ := n.Int64(); m.Type {
		case TypeExecutionStart:
			start = at
		case e.End:
			end = at
		}
	}
	if start <= 0 || end <= start || end > math.MaxInt64/int64(time.Millisecond) {
		return 0
	}
	return time.Duration(end-start) * time.Millisecond
}
