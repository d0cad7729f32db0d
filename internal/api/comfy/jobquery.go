package comfy

import (
	"net/url"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/python"
)

// The words of the jobs API for the state of a job.
const (
	jobPending    = "pending"
	jobInProgress = "in_progress"
	jobCompleted  = "completed"
	jobFailed     = "failed"
	jobCancelled  = "cancelled"
)

// jobStatuses are all of them, in the order in which ComfyUI names them.
func jobStatuses() []string {
	return []string{jobPending, jobInProgress, jobCompleted, jobFailed, jobCancelled}
}

// jobStatus is the word for a state. A job that was lost waits again.
func jobStatus(s job.State) string {
	switch s {
	case job.Queued:
		return jobPending
	case job.Done:
		return jobCompleted
	case job.Failed:
		return jobFailed
	case job.Cancelled:
		return jobCancelled
	default:
		return jobInProgress
	}
}

// jobQuery is what GET /api/jobs asks for.
type jobQuery struct {
	// statuses are those wanted; nil means all.
	statuses []string
	// workflow is the only workflow id wanted; "" means all.
	workflow   string
	byDuration bool
	ascending  bool
	// limit is the number of jobs on a page; 0 means no limit.
	limit  int
	offset int
}

// parseJobQuery reads a query as ComfyUI does; fault is the text with which it
// refuses one, "" for none.
func parseJobQuery(values url.Values) (q jobQuery, fault string) {
	q = jobQuery{workflow: values.Get("workflow_id")}
	if text := values.Get("status"); text != "" {
		q.statuses = []string{}
		var bad []string
		for s := range strings.SplitSeq(text, ",") {
			s = strings.ToLower(strings.TrimSpace(s))
			switch {
			case s == "":
			case slices.Contains(jobStatuses(), s):
				q.statuses = append(q.statuses, s)
			default:
				bad = append(bad, s)
			}
		}
		if len(bad) > 0 {
			return q, "Invalid status value(s): " + strings.Join(bad, ", ") + ". Valid values: " + strings.Join(jobStatuses(), ", ")
		}
	}
	switch by := wordOf(values, "sort_by", "created_at"); by {
	case "created_at":
	case "execution_duration":
		q.byDuration = true
	default:
		return q, "sort_by must be 'created_at' or 'execution_duration'"
	}
	switch order := wordOf(values, "sort_order", "desc"); order {
	case "desc":
	case "asc":
		q.ascending = true
	default:
		return q, "sort_order must be 'asc' or 'desc'"
	}
	if values.Has("limit") {
		n, ok := python.ClampedInt(values.Get("limit"))
		if !ok {
			return q, "limit must be an integer"
		}
		if n <= 0 {
			return q, "limit must be a positive integer"
		}
		q.limit = n
	}
	if values.Has("offset") {
		n, ok := python.ClampedInt(values.Get("offset"))
		if !ok {
			return q, "offset must be an integer"
		}
		q.offset = max(n, 0)
	}
	return q, ""
}

func (q jobQuery) wants(status string) bool {
	return q.statuses == nil || slices.Contains(q.statuses, status)
}

// wordOf is a parameter in lower case, or its default where it is absent.
func wordOf(values url.Values, name, otherwise string) string {
	if !values.Has(name) {
		return otherwise
	}
	return strings.ToLower(values.Get(name))
}
