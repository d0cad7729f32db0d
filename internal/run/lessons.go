package run

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// Lessons are the checks that instances are known to make of a prompt.
type Lessons struct {
	fleet *fleet.Registry
	queue *queue.Queue
}

// NewLessons returns the lessons that a queue has kept.
func NewLessons(registry *fleet.Registry, q *queue.Queue) *Lessons {
	return &Lessons{fleet: registry, queue: q}
}

// lessonOf is what an instance teaches. About ComfyUI's own code it speaks for all of its version.
func lessonOf(i fleet.Instance, text string) queue.Lesson {
	if catalog.OfComfyUI(text) {
		return queue.Lesson{Boot: i.Report.Version, Text: text}
	}
	return queue.Lesson{Instance: i.Name, Boot: i.BootID(), Text: text}
}

// Makes reports whether every instance that has a class is known to make a check
// of it. One that is away counts, too: it may come back with other code.
func (l *Lessons) Makes(ctx context.Context, infos map[string]*catalog.Info, q catalog.Question) bool {
	var lessons []queue.Lesson
	for name, info := range infos {
		if !info.Has(q.Class) {
			continue
		}
		text, ok := info.Lesson(q)
		i, known := l.fleet.Instance(name)
		if !ok || !known || i.Report.Boot == 0 {
			return false
		}
		lessons = append(lessons, lessonOf(i, text))
	}
	if len(lessons) == 0 {
		return false
	}
	all, err := l.queue.Learnt(ctx, lessons)
	return err == nil && all
}
