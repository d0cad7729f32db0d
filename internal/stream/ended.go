package stream

// maxEnded bounds the jobs whose ends a socket remembers.
const maxEnded = 1000

// endedJobs are the jobs whose ends were written to a socket. Whatever hubs find out later, such as
// that another run of the job is going on or that an end may not have been sent, nothing about
// these jobs is written to that socket again.
type endedJobs struct {
	known map[string]bool
	order []string
}

func (e *endedJobs) has(job string) bool { return e.known[job] }

func (e *endedJobs) add(job string) {
	if job == "" || e.known[job] {
		return
	}
	if e.known == nil {
		e.known = map[string]bool{}
	}
	if len(e.order) == maxEnded {
		delete(e.known, e.order[0])
		e.order = e.order[1:]
	}
	e.known[job] = true
	e.order = append(e.order, job)
}
