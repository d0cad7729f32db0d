package system

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

// deaths are when servers died. A prompt under which two of them have died is quarantined:
// no third server gets it, and it ends with an error that names both. That is promised, too. So does one
// that has lost its servers as often as it may be tried, where there are few or they come and go.
type deaths struct {
	mu sync.Mutex
	of map[string][]time.Time
}

func (d *deaths) add(server string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[string][]time.Time{}
	}
	d.of[server] = append(d.of[server], time.Now())
}

// victims finds the servers that an error names as dead.
var victims = regexp.MustCompile(`attempt \d+ on (\S+): the instance (?:died|cannot be reached)`)

// excuse reports whether an error may end a prompt that was accepted then: at least
// two deaths, each of which has really happened since.
func (d *deaths) excuse(err string, accepted time.Time) error {
	if !strings.Contains(err, "This prompt is quarantined") && !strings.Contains(err, "No instance could finish this prompt") {
		return fmt.Errorf("it ended with an error: %.600s", err)
	}
	claimed := map[string]int{}
	for _, v := range victims.FindAllStringSubmatch(strings.SplitN(err, "exception_type", 2)[0], -1) {
		server := strings.TrimSuffix(v[1], ":8188")
		if n, of := strings.CutPrefix(server, "agent"); of {
			server = "comfy" + n
		}
		claimed[server]++
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all := 0
	for server, n := range claimed {
		real := 0
		for _, at := range d.of[server] {
			if !at.Before(accepted) {
				real++
			}
		}
		if n > real {
			return fmt.Errorf("%s has not died %d times under it: %.600s", server, n, err)
		}
		all += n
	}
	if all < 2 {
		return fmt.Errorf("it was quarantined for %d deaths: %.600s", all, err)
	}
	return nil
}
