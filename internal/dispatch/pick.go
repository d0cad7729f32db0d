package dispatch

import "github.com/comfyhub/comfyhub/internal/job"

// Idle is an instance that could take a job now.
type Idle struct {
	// Name is the instance's name in the fleet.
	Name string
	// LastClient is the client whose job ran here last: its node cache is
	// warm and its models are loaded.
	LastClient string
	// Classes are the requirement classes that the instance can run, of those
	// that have waiting jobs.
	Classes map[string]bool
	// Refused are the keys of jobs that this instance has refused or lost.
	Refused map[string]bool
}

// can reports whether the instance may take the job.
func (i Idle) can(j job.Job) bool { return i.Classes[j.Class] && !i.Refused[j.Key] }

// Pair says that a job goes to an instance, and why.
type Pair struct {
	Job      job.Job
	Instance string
	Why      string
}

// Pick pairs waiting jobs, best first, with idle instances. It is the one
// place that decides which job goes where, and it waits for nobody: a job
// whose favourite instance is busy goes to another.
//
// Among the instances that can run a job it prefers the one that ran this
// client last, then the one that can run the fewest other classes, so that a
// machine with every model stays free for the jobs that only it can run.
func Pick(waiting []job.Job, idle []Idle) []Pair {
	free := append([]Idle(nil), idle...)
	var pairs []Pair
	for _, j := range waiting {
		best, why := -1, ""
		for n, instance := range free {
			if !instance.can(j) {
				continue
			}
			if j.Client != "" && instance.LastClient == j.Client {
				best, why = n, "ran this client last"
				break
			}
			if best < 0 || len(instance.Classes) < len(free[best].Classes) {
				best, why = n, "idle and able"
			}
		}
		if best < 0 {
			continue
		}
		pairs = append(pairs, Pair{Job: j, Instance: free[best].Name, Why: why})
		free = append(free[:best], free[best+1:]...)
		if len(free) == 0 {
			break
		}
	}
	return pairs
}
