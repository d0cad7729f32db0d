package queue

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// Lesson is a check that an instance is known to make, because it has refused a
// prompt by it. It is no part of the queue, but all hubs share it in the same
// way.
type Lesson struct {
	Instance string
	// Boot tells one life of the instance's process from the next: another
	// one may run other code.
	Boot string
	// Text is as package catalog words it.
	Text string
}

func (l Lesson) member() string { return redis.Pack(l.Instance, l.Boot, l.Text) }

const (
	// maxLessons bounds the lessons that are kept; the oldest go first.
	maxLessons = 10_000
	// lessonLife is how long one is believed. An instance that is asked again
	// answers in milliseconds.
	lessonLife = 30 * 24 * time.Hour
)

// Learn keeps lessons for all hubs.
func (q *Queue) Learn(ctx context.Context, lessons []Lesson) error {
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

// Learnt reports whether every one of the lessons is known.
func (q *Queue) Learnt(ctx context.Context, lessons []Lesson) (bool, error) {
	scores := make([]*redis.FloatCmd, len(lessons))
	err := q.pipeline(ctx, len(lessons), batchSize, func(p redis.Pipeliner, i int) {
		scores[i] = p.ZScore(ctx, q.keys.lessons(), lessons[i].member())
	})
	if err != nil {
		return false, err
	}
	oldest := float64(time.Now().Add(-lessonLife).UnixMilli())
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
