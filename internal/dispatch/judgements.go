package dispatch

import (
	"maps"
	"sync"

	"github.com/comfyhub/comfyhub/internal/catalog"
)

// maxJudgements bounds what is remembered: a thousand classes for each of 250 profiles.
const maxJudgements = 250_000

// judgements remember which instances can run which classes. Instances of one profile
// are alike, and a class is the hash of its requirements, so neither the decoding nor
// the comparison of thousands of names need be done twice. The zero value is empty.
type judgements struct {
	mu    sync.Mutex
	known map[catalog.Profile]map[string]bool
	count int
}

// can reports whether the instances of a profile can run each of the classes, which are
// given with their requirements. Requirements that cannot be read are a newer hub's; it
// will run them.
func (js *judgements) can(info *catalog.Info, classes map[string][]byte) map[string]bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	profile := info.Profile()
	able := map[string]bool{}
	for class, encoded := range classes {
		can, known := js.known[profile][class]
		if !known {
			needs, err := catalog.DecodeRequirements(encoded)
			if err != nil {
				continue
			}
			can = len(info.Satisfies(needs)) == 0
			js.keep(profile, class, can)
		}
		if can {
			able[class] = true
		}
	}
	return able
}

// keep remembers a judgement. Where there is no more room it drops all others: those
// that are still in use come back with the next look.
func (js *judgements) keep(profile catalog.Profile, class string, can bool) {
	if js.known == nil || js.count >= maxJudgements {
		js.known, js.count = map[catalog.Profile]map[string]bool{}, 0
	}
	if js.known[profile] == nil {
		js.known[profile] = map[string]bool{}
	}
	js.known[profile][class] = can
	js.count++
}

// able fills in which classes each idle instance can run and returns all of them
// together. Instances of one profile share one map.
func (js *judgements) able(idle []Idle, infos []*catalog.Info, classes map[string][]byte) (wanted []string) {
	profiles := map[catalog.Profile]map[string]bool{}
	any := map[string]bool{}
	for n, info := range infos {
		able, met := profiles[info.Profile()]
		if !met {
			able = js.can(info, classes)
			profiles[info.Profile()] = able
			for class := range able {
				if !any[class] {
					any[class] = true
					wanted = append(wanted, class)
				}
			}
		}
		idle[n].Classes = able
	}
	return wanted
}

// none returns those of the classes that none of the instances can run.
func (js *judgements) none(infos []*catalog.Info, classes map[string][]byte) map[string][]byte {
	met := map[catalog.Profile]bool{}
	left := maps.Clone(classes)
	for _, info := range infos {
		if info == nil || met[info.Profile()] {
			continue
		}
		met[info.Profile()] = true
		for class := range js.can(info, left) {
			delete(left, class)
		}
	}
	return left
}
