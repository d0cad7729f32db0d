package facade

import (
	"net/http"
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// ended is a prompt that has ended.
type ended struct {
	*Prompt
	entry *pyjson.Object
	// bytes are those of its outputs.
	bytes int64
}

// remember adds an entry to the history; the oldest makes way, with its files. The caller
// holds the lock.
func (s *Server) remember(e *ended) {
	e.bytes = s.files.size(e.ID)
	s.history = append(s.history, e)
	var all int64
	for _, old := range s.history {
		all += old.bytes
	}
	for len(s.history) > maxHistory || len(s.history) > 1 && all > maxKept {
		all -= s.history[0].bytes
		s.files.forget(s.history[0].ID)
		s.history = s.history[1:]
	}
}

func (s *Server) getHistory(w http.ResponseWriter, _ *http.Request) {
	s.answerHistory(w, func(*ended) bool { return true })
}

func (s *Server) getHistoryOf(w http.ResponseWriter, r *http.Request) {
	s.answerHistory(w, func(e *ended) bool { return e.ID == r.PathValue("id") })
}

func (s *Server) answerHistory(w http.ResponseWriter, wanted func(*ended) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := &pyjson.Object{}
	for _, e := range s.history {
		if wanted(e) {
			all.Set(e.ID, e.entry)
		}
	}
	answer(w, http.StatusOK, all)
}

func (s *Server) postHistory(w http.ResponseWriter, r *http.Request) {
	body, ok := readObject(w, r)
	if !ok {
		return
	}
	clear, _ := body.Get("clear")
	ids := texts(body.Array("delete"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = slices.DeleteFunc(s.history, func(e *ended) bool {
		gone := clear == pyjson.Bool(true) || slices.Contains(ids, e.ID)
		if gone {
			s.files.forget(e.ID)
		}
		return gone
	})
}
