package comfy

import (
	"crypto/sha256"
	"net/http"
	"slices"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// lists answers the routes that list jobs as older web UIs and scripts read them:
// the queue and the history.
type lists struct {
	shared

	shown    shown
	receipts receipts
}

// getQueue answers GET /queue: what runs and what waits, over the whole fleet.
// The caller's own come first, because scripts look at queue_running[0].
func (l lists) getQueue(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	jobs, err := l.hub().Jobs.Live(r.Context(), a.Tenant)
	if err != nil {
		l.Fail(w, r, err)
		return
	}
	jobs = l.shown.asListed(a, jobs)
	running, pending := inOrder(jobs, l.Recent.Owner(a))
	tag := queueTag(running, pending)
	if api.Has(r, tag) {
		api.Unchanged(w, r, tag)
		return
	}
	list := l.newListing(a, tag)
	defer list.close()
	list.text(`{"queue_running": `)
	err = list.tuples(r.Context(), running)
	if err == nil {
		list.text(`, "queue_pending": `)
		err = list.tuples(r.Context(), pending)
	}
	list.text("}")
	list.answer(w, r, err)
}

// inOrder parts what runs from what waits, and in each puts the jobs of an owner
// first.
func inOrder(jobs []job.Job, mine job.Owner) (running, pending []job.Job) {
	pending = make([]job.Job, 0, len(jobs)) // most jobs wait
	for _, own := range []bool{true, false} {
		for _, j := range jobs {
			switch {
			case mine.Has(j) != own:
			case j.State == job.Queued:
				pending = append(pending, j)
			default:
				running = append(running, j)
			}
		}
	}
	return running, pending
}

// queueVersion is part of each tag of GET /queue. It changes when equal jobs are shown
// differently than by earlier versions.
const queueVersion = "1"

// queueTag identifies an answer to GET /queue without reading the bodies of its jobs:
// the body of a key never changes.
func queueTag(running, pending []job.Job) []byte {
	sum := sha256.New()
	line := []byte(queueVersion)
	for _, jobs := range [][]job.Job{running, pending} {
		line = append(line, '\n')
		for _, j := range jobs {
			line = append(append(append(append(line, j.Key...), ' '), j.Number...), '\n')
			sum.Write(line)
			line = line[:0]
		}
	}
	sum.Write(line)
	return sum.Sum(nil)
}

// order is the body of POST /queue and POST /history.
type order struct {
	clear  bool
	delete []string
	client string
}

// readOrder reads such a body as ComfyUI's Python does: what would throw there
// is answered 500 here, and what would be ignored there is ignored.
func readOrder(q *api.Requests, w http.ResponseWriter, r *http.Request, a api.Requester) (order, bool) {
	v, done, ok := q.ReadJSON(w, r, a, api.ListBody)
	if !ok {
		return order{}, false
	}
	defer done()
	var o order
	switch v := v.(type) {
	case *pyjson.Object:
		c, _ := v.Get("clear")
		o.clear, o.client = python.Bool(c), v.String("client_id")
		if !v.Has("delete") {
			break
		}
		switch ids, _ := v.Get("delete"); ids := ids.(type) {
		case pyjson.Array:
			for _, id := range ids {
				if s, ok := id.(pyjson.String); ok && len(s) <= api.MaxName { // no job has a longer one
					o.delete = append(o.delete, string(s))
				}
			}
			o.delete = distinct(o.delete)
		case *pyjson.Object, pyjson.String: // iterable; names nothing
		default:
			api.WriteInternalError(w, r)
			return order{}, false
		}
	case pyjson.Array, pyjson.String: // no members: nothing to do
	default:
		api.WriteInternalError(w, r)
		return order{}, false
	}
	return o, true
}

// distinct are ids without repetitions: one that is named again costs what it costs once.
func distinct(ids []string) []string {
	seen := make(map[string]bool, len(ids))
	return slices.DeleteFunc(ids, func(id string) bool {
		again := seen[id]
		seen[id] = true
		return again
	})
}
