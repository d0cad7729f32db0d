package sim

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// handler answers the requests of a route, with a process.
type handler = func(*process, http.ResponseWriter, *http.Request)

// of makes handlers of the methods of a part of the process.
func of[T any](part func(*process) T) func(func(T, http.ResponseWriter, *http.Request)) handler {
	return func(handle func(T, http.ResponseWriter, *http.Request)) handler {
		return func(p *process, w http.ResponseWriter, r *http.Request) { handle(part(p), w, r) }
	}
}

// always answers with the same value.
func always(v pyjson.Value) handler {
	return func(_ *process, w http.ResponseWriter, _ *http.Request) { answerJSON(w, http.StatusOK, v) }
}

func notFound(_ *process, w http.ResponseWriter, _ *http.Request) {
	answerEmpty(w, http.StatusNotFound)
}
