// Package retention deletes what is too old or too much, and bytes that nobody can reach.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/tenants"
)

const (
	// maintenanceEvery is how often the janitor works. It does a little each time, so that it gets
	// through the whole storage in about an hour.
	maintenanceEvery = time.Minute
	// sweptAtOnce is how many parts of the storage are swept at a time.
	sweptAtOnce = 5
	// SweepAge is how old bytes must be that no name and no job needs: that is how long an operator
	// has to notice that a Redis has lost names. The trash keeps names for just as long.
	SweepAge = 7 * 24 * time.Hour
	// youngest is the age below which a file cannot be deleted at all: a run that shows an older
	// file again must not lose it to its neighbours.
	youngest = 10 * time.Minute
)

// AdviceForStrangers says what to do if Redis and the storage do not belong together.
const AdviceForStrangers = "give the hub the Redis or the storage that it had; if this Redis is to have the storage from now on: comfyhub adopt-storage"

// Janitor does what is not urgent.
type Janitor struct {
	DB        *redis.DB
	Queue     *queue.Queue
	Sharing   *files.Sharing
	Retention *files.Retention
	Trash     *files.Trash
	Full      func() bool // whether the storage is
	Bond      *files.Bond
	Held      *files.Held
	Pinned    *PinnedBlobs
	Ring      *keyring.Ring
	Keys      *apikeys.Keys
	Logins    *tenants.Logins
	// Self is the hub's lasting id.
	Self     string
	Settings func() *config.Settings
	Log      func() *slog.Logger
	// Part is the part of the storage that is swept next.
	Part int
	// strangers is what was last logged about the bond.
	strangers string
}

// Run works until the context ends: it deletes what is too old or too much, and bytes that nobody
// can reach. Only one hub at a time does so.
func (j *Janitor) Run(ctx context.Context) {
	tick := time.NewTicker(maintenanceEvery)
	defer tick.Stop()
	j.shareLogins(ctx)
	_ = j.together(ctx)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		j.Round(ctx)
	}
}

// Round does what is due each minute.
func (j *Janitor) Round(ctx context.Context) {
	j.shareLogins(ctx)
	if err := j.Sharing.Check(ctx, j.Self); errors.Is(err, files.ErrNotShared) {
		j.Log().Error("the hubs do not share one storage: files of one are missing at another", "error", err)
	}
	if err := j.together(ctx); err != nil {
		return // nothing may be deleted
	}
	lead, err := j.Sharing.Lead(ctx, "house", j.Self, 3*maintenanceEvery)
	if err != nil || !lead {
		return
	}
	if err := j.ExpireKeys(ctx); err != nil {
		j.Log().Warn("cannot delete keys that were replaced long ago", "error", err)
	}
	if err := j.retain(ctx); err != nil {
		j.Log().Warn("cannot delete all that is past the limits of the history", "error", err)
	}
	if j.Part == 0 {
		j.count(ctx)
	}
	now, since, err := j.Bond.Age(ctx)
	if err != nil {
		j.Log().Warn("cannot delete old blobs: cannot read the storage's clock", "error", err)
		return
	}
	if err := j.Held.Expire(ctx, now); err != nil {
		j.Log().Warn("cannot delete old held pictures", "error", err)
	}
	j.sweep(ctx, now, since)
}

// sweep goes through the next parts of the storage, whose clock shows now and which has belonged to
// this Redis since then. If that is not long enough ago, it leaves the storage alone: bytes without
// a name may belong to another Redis.
func (j *Janitor) sweep(ctx context.Context, now, since time.Time) {
	for range sweptAtOnce {
		if now.Sub(since) > SweepAge {
			swept, err := j.Retention.Sweep(ctx, j.Part, now, SweepAge, j.Pinned.All)
			if err != nil {
				j.Log().Warn("cannot sweep the storage", "error", err)
			}
			j.tellSwept("swept the storage", swept)
		}
		j.Part = (j.Part + 1) % files.SweepParts
	}
}

// count does what is due about once an hour.
func (j *Janitor) count(ctx context.Context) {
	if err := j.Queue.RecountHistory(ctx); err != nil {
		j.Log().Warn("cannot count the history of each tenant", "error", err)
	}
	if err := j.Retention.Adopt(ctx); err != nil {
		j.Log().Warn("cannot count the files of each tenant", "error", err)
	}
	if err := j.Bond.Beat(ctx); err != nil {
		j.Log().Warn("cannot update the bond between Redis and the storage", "error", err)
	}
}

// together returns nil while Redis and the storage belong together, and logs when that changes.
func (j *Janitor) together(ctx context.Context) error {
	err := j.Bond.Meet(ctx)
	said := ""
	if errors.Is(err, files.ErrStrangers) {
		said = err.Error()
	} else if err != nil {
		return err
	}
	switch {
	case said == j.strangers:
	case said != "":
		j.Log().Error("nothing is deleted from the storage", "error", err, "do", AdviceForStrangers)
	default:
		j.Log().Info("Redis and the storage belong together again")
	}
	j.strangers = said
	return err
}

func (j *Janitor) shareLogins(ctx context.Context) {
	if err := j.Logins.Share(ctx, j.DB); err != nil {
		j.Log().Debug("cannot share logins with other hubs", "error", err)
	}
}

func (j *Janitor) tellSwept(what string, swept files.Swept) {
	if swept.Files > 0 {
		j.Log().Info(what, "files", swept.Files, "bytes", swept.Bytes)
	}
}

// ExpireKeys deletes keys that nothing needs any more. What they have signed has been signed again
// by then.
func (j *Janitor) ExpireKeys(ctx context.Context) error {
	if _, err := j.DB.Now(ctx); err != nil { // brings Clock up to date
		return err
	}
	if err := j.Keys.SignAgain(ctx); err != nil {
		return err
	}
	return j.Ring.Expire(ctx, j.DB.Clock().Ago(0))
}

// retain deletes ended jobs that are too old, or whose files are too much, and the files that only
// such jobs name; then uploads that nobody uses.
func (j *Janitor) retain(ctx context.Context) error {
	if _, err := j.DB.Now(ctx); err != nil { // brings Clock up to date
		return err
	}
	return j.RetainSince(ctx, j.DB.Clock().Ago)
}

// RetainSince is retain; ago converts ages to times by Redis's clock. A failure holds up nothing
// else: a file that the storage refuses to delete must not keep all the others.
func (j *Janitor) RetainSince(ctx context.Context, ago func(age time.Duration) time.Time) error {
	s, old := j.Settings(), ago(youngest)
	var failed []error
	if s.HistoryAge > 0 {
		failed = append(failed, j.forget(ctx, "", ago(s.HistoryAge), old))
	}
	trash := files.TrashBounds{Size: s.HistorySize, Own: s.TenantLimits.HistorySize, Full: j.Full(), Old: ago(SweepAge)}
	emptied, err := j.Trash.Empty(ctx, trash, j.Pinned.All)
	j.tellSwept("emptied the trash", emptied)
	failed = append(failed, err)
	if own := s.TenantLimits.HistorySize; s.HistorySize > 0 || own > 0 {
		excess, err := j.Retention.Excess(ctx, s.HistorySize, own)
		failed = append(failed, err)
		for _, e := range excess {
			failed = append(failed, j.forget(ctx, e.Tenant, e.Until, old))
		}
	}
	if s.InputAge > 0 {
		swept, err := j.Retention.Expire(ctx, job.TypeInput, earlier(ago(s.InputAge), old), j.Pinned.All)
		j.tellSwept("deleted inputs that nobody uses", swept)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// forget deletes the jobs of a tenant, or of all with "", that ended no later than until, and the
// files that no younger job names. The jobs go first: an entry must not name what is gone. Nothing
// younger than old goes.
func (j *Janitor) forget(ctx context.Context, tenant string, until, old time.Time) error {
	until = earlier(until, old)
	if err := j.Queue.ExpireHistory(ctx, tenant, until); err != nil {
		return err
	}
	var swept files.Swept
	var err error
	if tenant == "" {
		swept, err = j.Retention.Expire(ctx, job.TypeOutput, until, j.Pinned.All)
	} else {
		swept, err = j.Retention.ExpireOwn(ctx, tenant, until, j.Pinned.All)
	}
	j.tellSwept("deleted files of old jobs", swept)
	return err
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}
