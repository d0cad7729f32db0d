package dispatch

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// maxJudgements bounds what is remembered: a thousand classes for each of 250 profiles.
const maxJudgements = 250_000

// judgements remembers which instances can run which classes. Instances of one profile are alike,
// and a class is the hash of its requirements, so there is no need to decode requirements or to
// compare thousands of names twice. The zero value is empty, and usable as long as no instance
// rests.
type judgements struct {
	mu    sync.Mutex
	known map[catalog.Profile]map[string]bool
	count int
	// standIns returns what the instances that take over for a resting one can run.
	standIns func(instance string) []*catalog.Info
	// forAPI returns what the instances can run that take only prompts whose work a paid service
	// does. Nil if there are none.
	forAPI func() []*catalog.Info
}

// can reports which of the classes the instances of a profile can run, given the requirements of
// each. Requirements that cannot be read come from a newer hub, which will run them.
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

// keep remembers a judgement. If there is no more room, it drops all others: those still in use
// come back with the next look.
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

// able fills in which of the classes each idle instance can run, and returns as wanted the jobs
// that any of them can run and those of all other classes. Instances of one profile share one map.
func (js *judgements) able(idle []schedule.Idle, infos []*catalog.Info, classes map[string][]byte) (wanted queue.Wanted) {
	type use struct {
		profile catalog.Profile
		tenants string
	}
	profiles, used := map[catalog.Profile]map[string]bool{}, map[use]bool{}
	any, own := map[string]bool{}, map[string]map[string]bool{}
	wanted.Reserved = true
	for n, info := range infos {
		profile := info.Profile()
		able, met := profiles[profile]
		if !met {
			able = js.leave(info, js.can(info, classes), classes)
			profiles[profile] = able
		}
		tenants := schedule.SetOf(idle[n].Tenants)
		wanted.Reserved = wanted.Reserved && idle[n].Tenants != nil
		if idle[n].Rests {
			able = js.without(able, js.standIns(idle[n].Name), classes)
		} else if used[use{profile, tenants}] {
			idle[n].Classes = able
			continue
		} else {
			used[use{profile, tenants}] = true
		}
		idle[n].Classes = able
		all := any
		if idle[n].Tenants != nil {
			if all = own[tenants]; all == nil {
				all = map[string]bool{}
				own[tenants] = all
			}
		}
		maps.Copy(all, able)
	}
	for tenants, all := range own {
		maps.DeleteFunc(all, func(class string, _ bool) bool { return any[class] })
		wanted.Own = append(wanted.Own, queue.Own{Tenants: strings.Split(tenants, "\x00"), Classes: slices.Collect(maps.Keys(all))})
	}
	for class := range classes {
		if !any[class] {
			wanted.But = append(wanted.But, class)
		}
	}
	return wanted
}

// without returns the classes of able that none of the instances can run.
func (js *judgements) without(able map[string]bool, infos []*catalog.Info, classes map[string][]byte) map[string]bool {
	left := js.none(infos, classes)
	able = maps.Clone(able)
	maps.DeleteFunc(able, func(class string, _ bool) bool { return left[class] == nil })
	return able
}

// none returns the classes that none of the instances can run.
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
