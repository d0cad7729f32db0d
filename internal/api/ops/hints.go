package ops

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/hints"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/tenantlru"
	"github.com/comfyhub/comfyhub/internal/view"
)

// graphs has what hints need of the graphs of live jobs, whose pages ask every two seconds.
type graphs struct{ known tenantlru.Map[hints.Graph] }

// getHints answers GET /hub/v1/hints/{id}: where the time of jobs like one goes, and what would make
// them shorter.
func (o finder) getHints(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	j, p, release := o.promptFor(w, r, a, path[0])
	if release == nil {
		return
	}
	defer release()
	api.WriteValue(w, o.hints(r.Context(), of(r, a), j, p))
}

// postDismissal answers POST /hub/v1/hints/{id}/dismiss/{name}: the tenant of the job sees no more
// hints of that name, with any job.
func (o finder) postDismissal(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	o.changeDismissed(w, r, a, path, o.hub().Insight.Dismissed.Add)
}

// postRestoring answers POST /hub/v1/hints/{id}/restore/{name}: the tenant of the job sees hints of that
// name again.
func (o finder) postRestoring(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	o.changeDismissed(w, r, a, path, o.hub().Insight.Dismissed.Remove)
}

// changeDismissed changes whether the tenant of a job sees hints of a name.
func (o finder) changeDismissed(w http.ResponseWriter, r *http.Request, a api.Requester, path []string, change func(ctx context.Context, tenant, name string) error) {
	if o.ofOthers(w, r, a) {
		return
	}
	j, err := o.hub().Insight.Job(r.Context(), of(r, a), path[0])
	if err != nil {
		o.failJob(w, r, err)
		return
	}
	if !slices.Contains(hints.Names(), path[1]) {
		api.WriteErrorText(w, http.StatusNotFound, "There is no such hint.")
		return
	}
	switch err := change(r.Context(), j.Tenant, path[1]); {
	case errors.Is(err, view.ErrFull):
		api.WriteErrorText(w, http.StatusInsufficientStorage, "The hub can note no more of them.")
	case err != nil:
		o.Fail(w, r, err)
	default:
		api.WriteEmpty(w, http.StatusOK)
	}
}

// measured is what was measured of jobs like one, and what hints need of its graph.
func (o finder) measured(ctx context.Context, v view.Viewer, j view.JobView, p prompt) (g hints.Graph, m hints.Measured) {
	f := o.hub().Finder
	known := false
	if j.State.Live() {
		o.graphs.known.Read(j.Tenant, j.Key, func(kept *hints.Graph) { g, known = *kept, true })
	}
	var graph *pyjson.Object
	if !known {
		value, _ := pyjson.Parse(p.graph)
		graph, _ = value.(*pyjson.Object)
		g = hints.Read(graph)
	}
	if j.State.Live() && !known {
		o.graphs.known.Change(j.Tenant, j.Key, func(kept *hints.Graph) { *kept = g })
	}
	m = f.Measured(ctx, v, j.Job, g, p.subject, o.kind)
	if unseen := f.Unseen(ctx, j.Job, p.outputs); len(unseen) > 0 {
		others := slices.DeleteFunc(slices.Clone(p.wanted), func(node string) bool { return slices.Contains(unseen, node) })
		only := hints.OnlyFor(graph, unseen, others)
		for _, s := range m.Classes {
			if slices.Contains(only, s.Class) {
				m.Unseen += s.Took
			}
		}
	}
	return g, m
}

// hints is what is known about jobs like one, as JSON.
func (o finder) hints(ctx context.Context, v view.Viewer, j view.JobView, p prompt) *pyjson.Object {
	g, m := o.measured(ctx, v, j, p)
	where, advice, hidden := pyjson.Array{}, pyjson.Array{}, []string{}
	var total time.Duration
	for _, s := range m.Classes {
		total += s.Took
		where = append(where, pyjson.NewObject(
			pyjson.Member{Key: "class_type", Value: pyjson.String(s.Class)},
			pyjson.Member{Key: "phase", Value: pyjson.String(string(s.Phase))},
			pyjson.Member{Key: "seconds", Value: took(s.Took)},
		))
	}
	without, err := o.hub().Insight.Dismissed.Of(ctx, j.Tenant)
	if err != nil {
		without = hints.Names() // rather none than those that somebody does not want
	} else {
		hidden = slices.DeleteFunc(slices.Clone(without), func(name string) bool { return !slices.Contains(hints.Names(), name) })
	}
	for _, h := range hints.Of(g, m, without) {
		one := pyjson.NewObject(
			pyjson.Member{Key: "name", Value: pyjson.String(h.Name)},
			pyjson.Member{Key: "text", Value: pyjson.String(h.Text)},
			pyjson.Member{Key: "saves", Value: took(h.Saves)},
		)
		if h.Job != "" {
			one.Set("job", pyjson.String(h.Job))
		}
		advice = append(advice, one)
	}
	return pyjson.NewObject(
		pyjson.Member{Key: "runs", Value: pyjson.Int(int64(m.Runs))},
		pyjson.Member{Key: "seconds", Value: took(total)},
		pyjson.Member{Key: "where", Value: where},
		pyjson.Member{Key: "hints", Value: advice},
		pyjson.Member{Key: "dismissed", Value: pyjson.Strings(hidden)},
	)
}

// kind is what instances say about a node class.
func (o finder) kind(class string) hints.Kind {
	c := o.hub().Classes.Known(class)
	is := func(key string) bool {
		v, _ := c.Get(key)
		b, _ := v.(pyjson.Bool)
		return bool(b)
	}
	return hints.Kind{Category: c.String("category"), API: is("api_node"), Output: is("output_node")}
}

// took is a time in seconds, to the millisecond.
func took(d time.Duration) pyjson.Value { return pyjson.Float(d.Round(time.Millisecond).Seconds()) }
