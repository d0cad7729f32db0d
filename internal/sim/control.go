package sim

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// queueRoutes shows and changes the queue and the history.
type queueRoutes struct {
	bodyLimit
	feat        features
	queue       *queue
	interrupted *atomic.Bool
}

func (q *queueRoutes) getQueue(w http.ResponseWriter, r *http.Request) {
	running, pending := q.queue.snapshot()
	tuples := func(items []*item) pyjson.Array {
		out := pyjson.Array{}
		for _, it := range items {
			extra := it.extra
			if q.feat.hidesSecrets {
				extra = it.publicExtra()
			}
			out = append(out, it.tuple(extra))
		}
		return out
	}
	answerJSON(w, http.StatusOK, dict("queue_running", tuples(running), "queue_pending", tuples(pending)))
}

// edit handles the common body of POST /queue and POST /history: first clear, then delete.
func (q *queueRoutes) edit(w http.ResponseWriter, r *http.Request, clear func(), remove func(id string)) {
	body, ok := q.readJSON(w, r)
	if !ok {
		return
	}
	req, isObject := body.(*pyjson.Object)
	if !isObject {
		switch body.(type) {
		case pyjson.Array, pyjson.String: // Python's "in" works on these and finds nothing
			answerEmpty(w, http.StatusOK)
		default:
			answerInternalError(w, r)
		}
		return
	}
	if v, ok := req.Get("clear"); ok && python.Bool(v) {
		clear()
	}
	if v, ok := req.Get("delete"); ok {
		switch ids := v.(type) {
		case pyjson.Array:
			for _, id := range ids {
				if s, ok := id.(pyjson.String); ok {
					remove(string(s))
				}
			}
		case pyjson.String: // iterated over letter by letter
			for _, letter := range string(ids) {
				remove(string(letter))
			}
		case *pyjson.Object:
			for id := range ids.All() {
				remove(id)
			}
		default:
			answerInternalError(w, r)
			return
		}
	}
	answerEmpty(w, http.StatusOK)
}

func (q *queueRoutes) postQueue(w http.ResponseWriter, r *http.Request) {
	q.edit(w, r, q.queue.clear, func(id string) { q.queue.remove(id) })
}

func (q *queueRoutes) postHistory(w http.ResponseWriter, r *http.Request) {
	q.edit(w, r, q.queue.forgetAll, q.queue.forget)
}

func (q *queueRoutes) getHistory(w http.ResponseWriter, r *http.Request) {
	query := query(r)
	maxItems, ok := intParam(query.Get("max_items"), query.Has("max_items"), noLimit)
	offset, ok2 := -1, true
	if q.feat.historyOffset {
		offset, ok2 = intParam(query.Get("offset"), query.Has("offset"), -1)
	}
	if !ok || !ok2 {
		answerInternalError(w, r)
		return
	}
	answerJSON(w, http.StatusOK, q.queue.page(maxItems, offset))
}

// intParam parses an integer as Python's int() does.
func intParam(text string, given bool, otherwise int) (int, bool) {
	if !given {
		return otherwise, true
	}
	n, exc := toInt(pyjson.String(text))
	if exc != nil {
		return 0, false
	}
	i, ok := n.Int64()
	return int(i), ok
}

func (q *queueRoutes) getHistoryEntry(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("prompt_id")
	out := dict()
	if entry, ok := q.queue.entry(id); ok {
		out.Set(id, entry)
	}
	answerJSON(w, http.StatusOK, out)
}

// postInterrupt interrupts the running prompt. If a prompt_id is given, the prompt
// must have that id. Broken JSON and an empty body mean any prompt.
func (q *queueRoutes) postInterrupt(w http.ResponseWriter, r *http.Request) {
	data, ok := q.readBody(w, r)
	if !ok {
		return
	}
	if q.feat.targetedInterrupt {
		body, err := pyjson.Parse(data)
		req, isObject := body.(*pyjson.Object)
		if err == nil && !isObject {
			answerInternalError(w, r)
			return
		}
		if v, ok := req.Get("prompt_id"); ok && python.Bool(v) {
			if id, ok := v.(pyjson.String); ok && q.queue.isRunning(string(id)) {
				q.interrupted.Store(true)
			}
			answerEmpty(w, http.StatusOK)
			return
		}
	}
	q.interrupted.Store(true)
	answerEmpty(w, http.StatusOK)
}

func (q *queueRoutes) postFree(w http.ResponseWriter, r *http.Request) {
	body, ok := q.readJSON(w, r)
	if !ok {
		return
	}
	req, isObject := body.(*pyjson.Object)
	if !isObject {
		answerInternalError(w, r)
		return
	}
	set := func(key string) bool {
		v, ok := req.Get(key)
		return ok && python.Bool(v)
	}
	if unload, free := set("unload_models"), set("free_memory"); unload || free {
		q.queue.request(unload, free)
	}
	answerEmpty(w, http.StatusOK)
}

func isDigits(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil && !strings.HasPrefix(s, "+")
}
