package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
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

// The bounds of a part of a search: of the jobs that it shows, of those that it counts, and of those
// that it ends or runs again.
const (
	maxShown   = 200
	maxActedOn = 50
)

// finder finds jobs, and acts on those that it finds.
type finder struct{ *room }

// lookup is what a query looks for.
type lookup struct {
	job.Filter
	cursor string
	limit  int
	// count says that nothing but the number is wanted.
	count bool
}

// errSearch begins what is wrong with a search.
var errSearch = errors.New("search")

// lookupOf reads the query of a search. What it does not know it refuses: a filter that is misspelt
// must not select more than was meant.
func lookupOf(query url.Values) (l lookup, err error) {
	l.limit = maxActedOn
	for _, name := range slices.Sorted(maps.Keys(query)) { // the same mistake is named each time
		values := query[name]
		value := values[0]
		switch {
		case len(values) > 1:
			err = errors.New("give it once")
		case value == "" || len(value) > job.MaxFilterText:
			err = fmt.Errorf("want 1 to %d bytes", job.MaxFilterText)
		default:
			err = l.read(name, value)
		}
		if err != nil {
			return lookup{}, fmt.Errorf("%w: %s: %w", errSearch, name, err)
		}
	}
	return l, nil
}

func (l *lookup) read(name, value string) (err error) {
	switch name {
	case "text":
		l.Text = value
	case "error":
		l.Error = value
	case "tenant":
		l.Tenant = value
	case "instance":
		l.Instance = value
	case "cursor":
		l.cursor = value
	case "status":
		l.States, err = statesOf(value)
	case "band":
		var ok bool
		if l.Band, ok = job.ParseBand(value); !ok {
			err = errors.New("want interactive, normal or bulk")
		}
	case "since":
		l.Since, err = momentOf(value)
	case "until":
		l.Until, err = momentOf(value)
	case "limit":
		l.limit, err = strconv.Atoi(value)
		if l.count = l.limit == 0; err != nil || l.limit < 0 || l.limit > maxShown {
			err = fmt.Errorf("want 0 to %d", maxShown)
		}
	default:
		err = errors.New("there is no such filter: want text, error, tenant, instance, status, band, since, until, cursor, limit")
	}
	return err
}

// statesOf reads states, with commas between them.
func statesOf(value string) (states []job.State, err error) {
	known := []job.State{job.Queued, job.Running, job.Done, job.Failed, job.Cancelled}
	for word := range strings.SplitSeq(value, ",") {
		if !slices.Contains(known, job.State(word)) {
			return nil, errors.New("want queued, running, done, failed or cancelled, with commas between them")
		}
		states = append(states, job.State(word))
	}
	return states, nil
}

// momentOf reads Unix seconds as milliseconds.
func momentOf(value string) (int64, error) {
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || !(seconds > 0 && seconds < math.MaxInt32*100) {
		return 0, errors.New("want Unix seconds")
	}
	return int64(seconds * 1000), nil
}

// getSearch answers GET /hub/search: a part of the jobs that a filter selects, with limit=0 only how
// many they are.
func (o finder) getSearch(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	l, err := lookupOf(api.QueryOf(r))
	if err != nil {
		api.WriteErrorText(w, http.StatusBadRequest, err.Error())
		return
	}
	limit := l.limit
	if l.count {
		limit = view.MaxSearched
	}
	found, err := o.hub().Finder.Search(r.Context(), a.Viewer(), l.Filter, l.cursor, limit)
	if err != nil {
		o.failSearch(w, r, err)
		return
	}
	matched := len(found.Jobs)
	if l.count {
		found.Jobs = nil
	}
	api.WriteDetail(w, pyjson.NewObject(
		pyjson.Member{Key: "jobs", Value: foundList(found.Jobs)},
		pyjson.Member{Key: "matched", Value: pyjson.Int(int64(matched))},
		pyjson.Member{Key: "looked", Value: pyjson.Int(int64(found.Looked))},
		pyjson.Member{Key: "next", Value: stringOrNull(found.Next)},
	))
}

// foundList are jobs with the names by which they are found.
func foundList(jobs []view.JobView) pyjson.Array {
	list := pyjson.Array{}
	for _, j := range jobs {
		entry := jobValue(j)
		entry.Set("key", pyjson.String(j.Key))
		list = append(list, entry)
	}
	return list
}

func (o finder) failSearch(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, view.ErrCursor) {
		api.WriteErrorText(w, http.StatusBadRequest, "cursor: want what a search has returned as next")
		return
	}
	o.Fail(w, r, err)
}

// postSearchCancel answers POST /hub/search/cancel: it ends the jobs that a filter selects and that
// run or wait, a part at a time.
func (o finder) postSearchCancel(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	o.actOnFound(w, r, a, []job.State{job.Queued, job.Running}, func(ctx context.Context, j view.JobView) error {
		return o.hub().Canceller.Stop(ctx, j.Job)
	})
}

// postSearchAgain answers POST /hub/search/again: it runs the jobs again that a filter selects and
// that have ended, a part at a time.
func (o finder) postSearchAgain(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	o.actOnFound(w, r, a, []job.State{job.Done, job.Failed, job.Cancelled}, func(ctx context.Context, j view.JobView) error {
		_, err := o.again(ctx, a, j)
		return err
	})
}

// actOnFound does something to a part of the jobs that a filter selects, if they are in one of some
// states. One that it cannot be done to keeps it from no other.
func (o finder) actOnFound(w http.ResponseWriter, r *http.Request, a api.Requester, in []job.State, act func(context.Context, view.JobView) error) {
	l, err := lookupOf(api.QueryOf(r))
	switch {
	case err != nil:
		api.WriteErrorText(w, http.StatusBadRequest, err.Error())
		return
	case l.All():
		api.WriteErrorText(w, http.StatusBadRequest, "give a filter, such as status=queued: nothing must not mean everything")
		return
	case a.Elsewhere && l.Tenant != a.Tenant:
		o.refuseElsewhere(w)
		return
	}
	if l.States = slices.DeleteFunc(in, func(s job.State) bool { return !l.Wants(s) }); len(l.States) == 0 {
		writeDone(w, 0, nil, "")
		return
	}
	found, err := o.hub().Finder.Search(r.Context(), a.Viewer(), l.Filter, l.cursor, min(max(l.limit, 1), maxActedOn))
	if err != nil {
		o.failSearch(w, r, err)
		return
	}
	done, failed := 0, pyjson.Array{}
	for _, j := range found.Jobs {
		if err := act(r.Context(), j); err != nil {
			failed = append(failed, pyjson.NewObject(
				pyjson.Member{Key: "id", Value: pyjson.String(j.ID)},
				pyjson.Member{Key: "tenant", Value: pyjson.String(j.Tenant)},
				pyjson.Member{Key: "error", Value: pyjson.String(reasonOf(err))},
			))
			continue
		}
		done++
	}
	writeDone(w, done, failed, found.Next)
}

func writeDone(w http.ResponseWriter, done int, failed pyjson.Array, next string) {
	api.WriteDetail(w, pyjson.NewObject(
		pyjson.Member{Key: "done", Value: pyjson.Int(int64(done))},
		pyjson.Member{Key: "failed", Value: append(pyjson.Array{}, failed...)},
		pyjson.Member{Key: "next", Value: stringOrNull(next)},
	))
}
