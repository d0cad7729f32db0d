package view

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

const (
	// watchPause is the pause between two looks at the watched jobs, and watchEach what each of
	// them adds to it: ten thousand jobs are read about once a second.
	watchPause = 200 * time.Millisecond
	watchEach  = 100 * time.Microsecond
	// watchTimeout bounds one look.
	watchTimeout = 10 * time.Second
)

// Watches tells how single jobs progress, whichever hub runs them. All jobs watched at this hub are
// read together, so that the cost does not depend on who asks how often.
type Watches struct {
	read func(ctx context.Context, keys []string) ([]job.Job, error)
	log  func() *slog.Logger
	// begun wakes the loop when there is something to watch again.
	begun chan struct{}

	mu   sync.Mutex
	jobs map[string]*watchedJob
}

// watchedJob is a job that somebody is watching.
type watchedJob struct {
	last job.Job
	news map[chan job.Job]struct{}
}

// NewWatches watches what read reads.
func NewWatches(read func(context.Context, []string) ([]job.Job, error), log func() *slog.Logger) *Watches {
	return &Watches{read: read, log: log, begun: make(chan struct{}, 1), jobs: map[string]*watchedJob{}}
}

// Watch sends a job, as its client sees it, whenever its state or its progress differs from what
// the caller knows. A slow reader only gets the latest. The channel is closed when the job is gone.
// stop must be called.
func (s *Watches) Watch(j job.Job) (news <-chan job.Job, stop func()) {
	own := make(chan job.Job, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.jobs[j.Key]
	if w == nil {
		w = &watchedJob{last: j, news: map[chan job.Job]struct{}{}}
		s.jobs[j.Key] = w
	} else if differ(w.last, j) {
		own <- w.last
	}
	w.news[own] = struct{}{}
	select {
	case s.begun <- struct{}{}:
	default:
	}
	return own, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(w.news, own); len(w.news) == 0 && s.jobs[j.Key] == w {
			delete(s.jobs, j.Key)
		}
	}
}

// Run looks at what is being watched until ctx ends.
func (s *Watches) Run(ctx context.Context) {
	timer := time.NewTimer(watchPause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		keys := s.Keys()
		if len(keys) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-s.begun:
			}
			timer.Reset(watchPause)
			continue
		}
		if err := s.look(ctx, keys); err != nil && ctx.Err() == nil {
			s.log().Debug("cannot look at watched jobs", "error", err)
		}
		timer.Reset(watchPause + time.Duration(len(keys))*watchEach)
	}
}

// Keys returns the keys of the jobs that are watched.
func (s *Watches) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]string, 0, len(s.jobs))
	for key := range s.jobs {
		keys = append(keys, key)
	}
	return keys
}

// look reads jobs and passes on what has changed.
func (s *Watches) look(ctx context.Context, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	jobs, err := s.read(ctx, keys)
	if err != nil {
		return err
	}
	found := make(map[string]job.Job, len(jobs))
	for _, j := range jobs {
		if !j.Withdrawn {
			found[j.Key] = j.Seen()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		w := s.jobs[key]
		if w == nil {
			continue
		}
		j, ok := found[key]
		if !ok {
			delete(s.jobs, key)
			for news := range w.news {
				close(news)
			}
			continue
		}
		if !differ(w.last, j) {
			continue
		}
		w.last = j
		for news := range w.news {
			select {
			case <-news: // the reader is slow, and this is newer
			default:
			}
			news <- j
		}
	}
	return nil
}

// differ reports whether two readings of a job differ in anything that watchers are told.
func differ(a, b job.Job) bool {
	return a.State != b.State || a.Progress != b.Progress || a.StartedAt != b.StartedAt
}
