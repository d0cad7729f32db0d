package comfyv2

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// defaultPage is how many jobs a page has, maxPage how many at most.
const defaultPage, maxPage = 50, 100

// maxListed bounds the jobs of an answer, in bytes: errors and outputs may be of any length.
const maxListed = 4 << 20

// shownJobs are jobs in an answer.
type shownJobs struct {
	list pyjson.Array
	size int
}

// add adds a job, unless there is no room for it; the first one always fits.
func (s *shownJobs) add(j *pyjson.Object) bool {
	if s.size += len(pyjson.Marshal(j)); s.size > maxListed && len(s.list) > 0 {
		return false
	}
	s.list = append(s.list, j)
	return true
}

// jobList is what a request for jobs wants.
type jobList struct {
	limit    int
	statuses []string // nil for all
	labels   map[string]string
	// after is the last job of the page before; its zero value for the first page.
	after job.Job
}

// readJobList reads the query of GET /api/v2/jobs.
func readJobList(q url.Values) (l jobList, err error) {
	odd := func(code, message string) error {
		return &problem{status: http.StatusBadRequest, code: code, message: message}
	}
	l.limit = defaultPage
	if q.Has("limit") {
		if l.limit, err = strconv.Atoi(q.Get("limit")); err != nil || l.limit < 1 || l.limit > maxPage {
			return l, odd(codeRequest, "'limit' must be a whole number from 1 to "+strconv.Itoa(maxPage)+".")
		}
	}
	known := []string{statusQueued, statusRunning, statusSucceeded, statusCanceling, statusCanceled, statusFailed, statusExpired}
	for status := range strings.SplitSeq(q.Get("status"), ",") {
		if status = strings.TrimSpace(status); status == "" {
			continue
		}
		if !slices.Contains(known, status) {
			return l, odd(codeRequest, "'status' must be one or more of "+strings.Join(known, ", ")+".")
		}
		l.statuses = append(l.statuses, status)
	}
	if cursor := q.Get("cursor"); cursor != "" {
		var ok bool
		if l.after, ok = readCursor(cursor); !ok {
			return l, odd("invalid_cursor", "'cursor' is none of this hub's.")
		}
	}
	l.labels, err = wantedLabels(q)
	return l, err
}

// cursorOf is where the page after a job begins.
func cursorOf(j job.Job) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(j.CreatedAt, 10) + " " + j.Key))
}

func readCursor(cursor string) (j job.Job, ok bool) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	created, key, found := strings.Cut(string(text), " ")
	at, odd := strconv.ParseInt(created, 10, 64)
	return job.Job{CreatedAt: at, Key: key}, err == nil && found && odd == nil
}

// newestFirst orders jobs; those of one moment by key.
func newestFirst(a, b job.Job) int {
	return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(b.Key, a.Key))
}

// wants reports whether a job is among those that are asked for.
func (l jobList) wants(j job.Job) bool {
	return (l.statuses == nil || slices.Contains(l.statuses, statusOf(j.State))) && (len(l.labels) == 0 || labelOf(j).has(l.labels)) &&
		(l.after.Key == "" || newestFirst(l.after, j) < 0)
}

// page is the part of all jobs that is asked for, and whether there are more.
func (l jobList) page(all []job.Job) (page []job.Job, more bool) {
	for _, j := range all {
		if l.wants(j) {
			page = append(page, j)
		}
	}
	slices.SortFunc(page, newestFirst)
	more = len(page) > l.limit
	return page[:min(l.limit, len(page))], more
}

// getJobs answers GET /api/v2/jobs with the requester's jobs, the newest first, whichever room
// has taken them in.
func (o jobs) getJobs(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	asked, err := readJobList(api.QueryOf(r))
	if err != nil {
		o.refuse(w, r, err)
		return
	}
	all, err := o.all(r.Context(), a)
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	page, more := asked.page(all)
	shown := shownJobs{list: pyjson.Array{}}
	places := o.hub().Insight.Positions(r.Context(), page...)
	for n, j := range page {
		one, err := o.listed(r.Context(), a, view.JobView{Job: j, Position: places[n], ETA: -1}, maxSized/len(page))
		if err != nil {
			o.Fail(w, r, err)
			return
		}
		if !shown.add(one) {
			page, more = page[:n], true
			break
		}
	}
	next := pyjson.Value(pyjson.Null{})
	if more {
		next = pyjson.String(cursorOf(page[len(page)-1]))
	}
	api.WriteDetail(w, object("jobs", shown.list, "truncated", pyjson.Bool(false), "next_cursor", next))
}

// all are the requester's jobs. What lives is read before what has ended, so that a job that ends
// meanwhile is found twice rather than not at all.
func (o jobs) all(ctx context.Context, a api.Requester) ([]job.Job, error) {
	live, err := o.hub().Jobs.Live(ctx, a.Tenant)
	if err != nil {
		return nil, err
	}
	ended, err := o.hub().Jobs.Ended(ctx, a.Tenant)
	if err != nil {
		return nil, err
	}
	over := make(map[string]bool, len(ended))
	all := make([]job.Job, 0, len(live)+len(ended))
	for _, e := range ended {
		over[e.Job.Key] = true
		all = append(all, e.Job)
	}
	for _, j := range live {
		if !over[j.Key] {
			all = append(all, j)
		}
	}
	return all, nil
}

// listed is a job as a list shows it: with the sizes of so many outputs.
func (o jobs) listed(ctx context.Context, a api.Requester, j view.JobView, sized int) (*pyjson.Object, error) {
	shown, err := o.show(ctx, a, j, sized)
	if err != nil {
		return nil, err
	}
	shown.Set("create_time", instant(j.CreatedAt))
	shown.Set("update_time", instant(max(j.CreatedAt, j.StartedAt, j.FinishedAt)))
	return shown, nil
}
