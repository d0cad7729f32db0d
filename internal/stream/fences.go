package stream

import "slices"

// finished is the fence of a job whose end the client has, or is about to be sent.
const finished = int64(^uint64(0) >> 1)

const (
	// maxFences bounds how many of a client's jobs are remembered.
	maxFences = 4096
	// maxRecent bounds the jobs whose receipt is passed on to the client's next owner.
	maxRecent = 64
)

// fences keep one law for a client: nothing of a run is shown once a later run of its job, or the
// job's end, is known.
type fences struct {
	alone  bool             // no other hub runs any job
	newest map[string]int64 // the newest fence of each job
	recent []string         // jobs received last, at most maxRecent
}

// enter records the fence of a run and reports whether no later run of the job is known. Earlier runs
// are over, whatever their hubs say.
func (f *fences) enter(l *line, job string, fence int64) bool {
	if job == "" || f.alone {
		return true
	}
	if f.newest[job] > fence {
		return false
	}
	f.note(job, fence)
	for _, q := range slices.Clone(l.lists.running) {
		if q.job == job && q.fence < fence {
			l.lose(q)
		}
	}
	return true
}

func (f *fences) note(job string, fence int64) {
	if job == "" {
		return
	}
	if f.newest == nil || len(f.newest) >= maxFences {
		f.newest = map[string]int64{} // a hub that returns so late is rare
	}
	f.newest[job] = fence
}

// hasEnd reports whether the client has the end of a job, or is about to be sent it.
func (f *fences) hasEnd(job string) bool { return job != "" && f.newest[job] == finished }

// received records that the client has a job's end. The hub that ran the job is
// also told, but the client may move before that hub knows, and its next owner must
// not show the end again.
func (f *fences) received(job string) {
	f.note(job, finished)
	if job == "" || f.alone || slices.Contains(f.recent, job) {
		return
	}
	if len(f.recent) >= maxRecent {
		f.recent = slices.Delete(f.recent, 0, 1)
	}
	f.recent = append(f.recent, job)
}
