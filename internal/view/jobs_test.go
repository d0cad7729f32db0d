package view

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// While the end of a run is being stored, its instance has begun the next one: as many are listed
// as running as there are instances.
func TestNextAtAnInstanceWaits(t *testing.T) {
	t.Parallel()
	at := func(id, instance string, fence int64, state job.State) job.Job {
		return job.Job{ID: id, State: state, Run: job.Run{Instance: instance, Fence: fence}}
	}
	jobs := []job.Job{
		at("next", "one", 12, job.Running), at("ends", "one", 10, job.Running), at("other", "two", 11, job.Running),
		at("cloud", "", 13, job.Running), at("cloud too", "", 14, job.Running), at("waits", "one", 9, job.Queued),
	}
	var list []string
	for _, j := range seen(jobs) {
		if running(j) {
			list = append(list, j.ID)
		}
	}
	require.Equal(t, []string{"ends", "other", "cloud", "cloud too"}, list)
}
