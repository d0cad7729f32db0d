package ops

import (
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/hints"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// getHints answers GET /hub/v1/hints/{id}: where the time of jobs like one goes, and what would make
// them shorter.
func (o finder) getHints(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	j, p, release := o.promptFor(w, r, a, path[0])
	if release == nil {
		return
	}
	defer release()
	api.WriteValue(w, o.hints(j.Job, p.graph))
}

// hints is what is known about jobs like one, as JSON.
func (o finder) hints(j job.Job, prompt []byte) *pyjson.Object {
	m := o.hub().Finder.Measured(j, o.kind)
	v, _ := pyjson.Parse(prompt)
	graph, _ := v.(*pyjson.Object)
	where, advice := pyjson.Array{}, pyjson.Array{}
	var total time.Duration
	for _, s := range m.Classes {
		total += s.Took
		where = append(where, pyjson.NewObject(
			pyjson.Member{Key: "class_type", Value: pyjson.String(s.Class)},
			pyjson.Member{Key: "phase", Value: pyjson.String(string(s.Phase))},
			pyjson.Member{Key: "seconds", Value: took(s.Took)},
		))
	}
	for _, h := range hints.Of(graph, m) {
		advice = append(advice, pyjson.NewObject(
			pyjson.Member{Key: "name", Value: pyjson.String(h.Name)},
			pyjson.Member{Key: "text", Value: pyjson.String(h.Text)},
			pyjson.Member{Key: "saves", Value: took(h.Saves)},
		))
	}
	return pyjson.NewObject(
		pyjson.Member{Key: "runs", Value: pyjson.Int(int64(m.Runs))},
		pyjson.Member{Key: "seconds", Value: took(total)},
		pyjson.Member{Key: "where", Value: where},
		pyjson.Member{Key: "hints", Value: advice},
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
