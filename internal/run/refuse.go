package run

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// refused handles an instance that does not take the prompt. The catalog says that it can run the
// prompt, so the instance may have changed: another one is tried if there is one, else the client
// is told. A client that is still waiting for the answer to its POST gets the instance's answer; so
// does one that would have to wait for instances that would say the same.
func (r posting) refused(ctx context.Context, why refusal) result {
	j := r.Job()
	r.d.Rests.NotTaken(r.conn, j.Key, true)
	r.keepLessons(ctx, why)
	r.d.Discovery.LearnFrom(why.Refused)
	if others := r.elsewhere(); len(others) > 0 {
		if r.speaksFor(others, why) {
			if v := r.reject(ctx, why); v != undecided {
				return result{kind: v}
			}
		}
		r.d.Doors.of(j.Key).another()
		return result{kind: excused, cause: Refused, reason: "the instance refused it: " + why.Type}
	}
	if j.Excuses < freeExcuses && r.runsElsewhere() {
		r.d.Doors.of(j.Key).another()
		return result{kind: excused, cause: Refused, reason: "the instance refused it: " + why.Type}
	}
	if v := r.reject(ctx, why); v != undecided {
		return result{kind: v}
	}
	r.log.Info("instance refused the prompt", "type", why.Type)
	showing(r).openStream(ctx)
	showing(r).send(0, "", comfyui.ExecutionStart(j.ID, time.Now()))
	return errorEnding(r.Job(), r.body, RefusalError(why.Refused), time.Now())
}

// speaksFor reports whether an instance's refusal stands for all the others, none of which can be
// asked now: they have the same version and describe the classes in the same way. An idle one is
// asked, since its code may still differ.
func (r posting) speaksFor(others []*instance.Link, why refusal) bool {
	info, version := r.conn.Abilities(), r.conn.Capability()
	if info == nil {
		return false
	}
	for _, other := range others {
		its := other.Abilities()
		if its == nil || other.Capability() != version || r.d.Reports.IsIdle(other) || !info.RefusesAlike(its, r.body.Prompt, why.NodeErrors) {
			return false
		}
	}
	return true
}

// reject makes the instance's refusal the answer to the client's POST. It returns undecided if the
// client already has an answer.
func (r posting) reject(ctx context.Context, why refusal) resultKind {
	err := r.retry(ctx, "reject", func(ctx context.Context) error {
		return r.d.Queue.Reject(ctx, r.Lease(), why.Body)
	})
	switch {
	case errors.Is(err, queue.ErrAnswered):
		return undecided
	case err != nil:
		return dropped // stale: somebody else ends it; or the hub is stopping
	}
	r.phase = ended
	r.log.Info("instance refused the prompt before its client was answered", "type", why.Type)
	finishing(r).finished("rejected", 0)
	r.Detach()
	r.d.Doors.of(r.Job().Key).settle(nil)
	r.d.Signal.Wake()
	return rejected
}

// runsElsewhere reports whether another hub has an instance that could run the job.
func (r posting) runsElsewhere() bool {
	needs, err := catalog.DecodeRequirements(r.body.Requires)
	return err == nil && r.d.Elsewhere.AnotherHubHas(needs, r.Job().Tenant)
}

// keepLessons stores what an instance's refusal says about the checks that it makes, so that the
// next such prompt is refused without asking it.
func (r posting) keepLessons(ctx context.Context, why refusal) {
	info := r.conn.Abilities()
	i, known := r.d.Fleet.Instance(r.conn.Name)
	if info == nil || !known || i.Report.Boot == 0 {
		return
	}
	var lessons []queue.Lesson
	for _, text := range info.Lessons(r.body.Prompt, why.NodeErrors) {
		lessons = append(lessons, lessonOf(i, text))
	}
	if err := r.d.Queue.Learn(ctx, lessons); err != nil {
		r.log.Debug("cannot remember a refusal", "error", err)
	}
}
