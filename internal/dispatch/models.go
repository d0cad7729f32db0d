package dispatch

import (
	"context"
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// maxModelSets bounds the classes whose models are remembered.
const maxModelSets = 10_000

// modelSets remembers which models the jobs of a class load: the files named in its requirements.
// ComfyUI keeps the models of the last prompt that it ran, so the class of an instance's last run
// says what is loaded there. The zero value is empty.
type modelSets struct {
	queue *queue.Queue

	mu    sync.Mutex
	known map[string][]string
}

// of returns the models of a class; known is false if nobody has asked for them yet.
func (s *modelSets) of(class string) (models []string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	models, known = s.known[class]
	return models, known
}

func (s *modelSets) keep(class string, models []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxModelSets {
		s.known = map[string][]string{}
	}
	s.known[class] = models
}

// modelsIn lists the models that requirements name, each once.
func modelsIn(needs catalog.Requirements) []string {
	var models []string
	for _, c := range needs.Choices {
		if job.NamesModel(c.Value) {
			models = append(models, c.Value)
		}
	}
	slices.Sort(models)
	return slices.Compact(models)
}

// get returns the models that the jobs of a class load; none if unknown.
func (s *modelSets) get(ctx context.Context, class string) []string {
	if models, known := s.of(class); known {
		return models
	}
	var models []string
	texts, err := s.queue.Requirements(ctx, []string{class})
	if err != nil {
		return nil
	}
	if needs, err := catalog.DecodeRequirements(texts[class]); err == nil {
		models = modelsIn(needs)
	}
	s.keep(class, models)
	return models
}
