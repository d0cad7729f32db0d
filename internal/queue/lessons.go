package queue

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// Lesson is a check that an instance is known to make, because it has refused a prompt for it.
// Lessons are not part of the queue, but all hubs share them in the same way.
type Lesson struct {
	Instance string
	// Boot tells one run of the instance's process from the next, which may have
	// different code.
	Boot string
	// Text is worded by package catalog.
	Text string
}

func (l Lesson) member() string { return redis.Pack(l.Instance, l.Boot, l.Text) }

const (
	// maxLessons bounds the lessons that are kept; the oldest go first.
	maxLessons = 10_000
	// lessonLife is how long a lesson is believed. Asking an instance again takes milliseconds.
	lessonLife = 30 * 24 * time.Hour
)

// Learn stores lessons for all hubs.
func (q *Lessons) Learn(ctx context.Context, lessons []Lesson) error {
	if len(lessons) == 0 {
		return nil
	}
	args := []any{maxLessons, milliseconds(lessonLife)}
	for _, l := range lessons {
		args = append(args, l.member())
	}
	_, _, err := q.run(ctx, learnScript, args...)
	return err
}

// Learnt reports whether all of the lessons are known.
func (q *Lessons) Learnt(ctx context.Context, lessons []Lesson) (bool, error) {
	scores := make([]*redis.FloatCmd, len(lessons))
	err := q.pipeline(ctx, len(lessons), batchSize, func(p redis.Pipeliner, i int) {
		scores[i] = p.ZScore(ctx, q.keys.lessons(), lessons[i].member())
	})
	if err != nil {
		return false, err
	}
	oldest := float64(q.Clock().Now().Add(-lessonLife).UnixMilli())
	for _, score := range scores {
		if err := score.Err(); err != nil {
			if errors.Is(err, redis.Nil) {
				return false, nil
			}
			return false, err
		}
		if score.Val() < oldest {
			return false, nil
		}
	}
	return true, nil
}
