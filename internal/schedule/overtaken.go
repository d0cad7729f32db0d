package schedule

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// Overtaken remembers since when waiting jobs have been overtaken by others. The zero value is
// empty.
type Overtaken map[string]time.Time

// Due returns the jobs that must not be overtaken any more.
func (o Overtaken) Due(jobs []job.Job, bound time.Duration, now time.Time) map[string]bool {
	due := map[string]bool{}
	for _, j := range jobs {
		if since, passed := o[j.Key]; passed && now.Sub(since) >= bound {
			due[j.Key] = true
		}
	}
	return due
}

// Note adds jobs that were overtaken just now, and forgets those that have waited so long since
// that they must be gone.
func (o *Overtaken) Note(keys []string, now time.Time) {
	const many, old = 10_000, time.Hour
	if *o == nil || len(*o) > 2*many {
		*o = Overtaken{} // the bound starts over for those still waiting
	}
	if len(*o) > many {
		for key, since := range *o {
			if now.Sub(since) > old {
				delete(*o, key)
			}
		}
	}
	for _, key := range keys {
		if _, passed := (*o)[key]; !passed {
			(*o)[key] = now
		}
	}
}

// Late returns the jobs that have been overtaken for as long as they take to run, or for as long as
// any may be.
func (o Overtaken) Late(jobs []job.Job, takes map[string]time.Duration, bound time.Duration, now time.Time) map[string]bool {
	late := map[string]bool{}
	for _, j := range jobs {
		if since, passed := o[j.Key]; passed && now.Sub(since) >= min(takes[j.Key], bound) {
			late[j.Key] = true
		}
	}
	return late
}
