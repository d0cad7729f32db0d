package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// maxFiles bounds the files of a run, or of a part of one: each costs Redis a name, and the instance
// is the one that says how many there are.
const maxFiles = 10_000

// outputs copies the output files of one run to the hub and knows their names there.
type outputs struct {
	run *Run
	// part is the connection of the instance that has made a part of the run; nil for the run's own.
	part *instance.Link
	// copying ends with the run: nobody waits for copies that are still going on then. It is nil
	// before the first one. life guards it, even while mu is held for long.
	life    sync.Mutex
	copying context.Context
	cancel  context.CancelFunc

	mu    sync.Mutex
	names map[job.FileRef]job.FileRef
	waits []func(context.Context) error
	err   error
	// parts are the outputs of the run's other parts. life guards it.
	parts []*outputs
}

func newOutputs(r *Run) *outputs {
	return &outputs{run: r, names: map[job.FileRef]job.FileRef{}}
}

// conn returns the connection of the instance that has the files.
func (o *outputs) conn() *instance.Link {
	if o.part != nil {
		return o.part
	}
	return o.run.conn
}

// join makes the files of a part some of the run's.
func (o *outputs) join(part *outputs) {
	o.life.Lock()
	defer o.life.Unlock()
	o.parts = append(o.parts, part)
}

// leave ends the copies of a part that is made again, and forgets its names.
func (o *outputs) leave(part *outputs) {
	part.stop()
	o.life.Lock()
	defer o.life.Unlock()
	o.parts = slices.DeleteFunc(o.parts, func(one *outputs) bool { return one == part })
}

// joined returns the outputs of the run's other parts.
func (o *outputs) joined() []*outputs {
	o.life.Lock()
	defer o.life.Unlock()
	return slices.Clone(o.parts)
}

// unseen are the files of an output that the hub has given no names yet.
type unseen struct {
	// cached says that they are probably from an earlier run, so that the hub has them.
	cached bool
	// after are names at the hub that theirs are to follow. Nothing keeps them: a run may have many
	// parts, and the names of each follow those of all before it.
	after []job.FileRef
}

// rename returns an output with the hub's names, and starts copying unseen files. A file that
// cannot be copied loses the run, and so do too many; settle reports that. The error is queue.ErrUnavailable,
// files.ErrStorage or files.ErrInstance: no names can be given now, and the output must be renamed
// again later.
func (o *outputs) rename(output []byte, u unseen) ([]byte, error) {
	if o.run.d.Shown != nil {
		o.run.d.Shown(o.run.Job().Tenant, o.conn().Name, output)
	}
	if !comfyui.HasFiles(output) {
		return output, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	unknown := o.unknown(output)
	switch {
	case len(o.names)+len(unknown) > maxFiles:
		if o.err == nil {
			o.err = fmt.Errorf("the instance names more than %d files", maxFiles)
		}
	case len(unknown) > 0:
		if err := o.collect(unknown, u); err != nil {
			return nil, err
		}
	}
	return comfyui.Rename(output, func(f job.FileRef) job.FileRef {
		if name, ok := o.names[f]; ok {
			return name
		}
		return f
	}), nil
}

// unknown returns the files of an output that have no names yet. The caller holds the lock.
func (o *outputs) unknown(output []byte) []job.FileRef {
	var unknown []job.FileRef
	met := map[job.FileRef]bool{}
	for _, f := range comfyui.Files(output) {
		if _, ok := o.names[f.Ref]; !ok && !met[f.Ref] {
			met[f.Ref] = true
			unknown = append(unknown, f.Ref)
		}
	}
	return unknown
}

func (o *outputs) collect(outputs []job.FileRef, u unseen) error {
	r, copying := o.run, o.begin()
	names, wait, err := r.d.Files.Collect(copying, r.Job().Tenant, outputs, u.after, r.d.target(o.conn()), u.cached)
	if errors.Is(err, queue.ErrUnavailable) || errors.Is(err, files.ErrStorage) || errors.Is(err, files.ErrInstance) ||
		copying.Err() != nil {
		return err
	}
	if err != nil {
		r.log.Warn("cannot collect an output", "error", err)
		if o.err == nil {
			o.err = fmt.Errorf("an output file cannot be copied: %w", err)
		}
		return nil
	}
	for n, f := range outputs {
		o.names[f] = names[n]
	}
	o.waits = append(o.waits, wait)
	return nil
}

// begin returns the context of the copies.
func (o *outputs) begin() context.Context {
	o.life.Lock()
	defer o.life.Unlock()
	if o.copying == nil {
		o.copying, o.cancel = context.WithCancel(o.run.d.Ctx)
	}
	return o.copying
}

// stop ends copies that are still going on, and a rename that is waiting for the instance.
func (o *outputs) stop() {
	for _, part := range o.joined() {
		part.stop()
	}
	o.life.Lock()
	defer o.life.Unlock()
	if o.cancel != nil {
		o.cancel()
	}
}

// pending reports whether settle may have to wait.
func (o *outputs) pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err == nil && len(o.waits) > 0
}

// settle waits until the hub has all the files.
func (o *outputs) settle(ctx context.Context) error {
	o.mu.Lock()
	waits, err := o.waits, o.err
	o.mu.Unlock()
	if err != nil {
		return err
	}
	for _, wait := range waits {
		if err := wait(ctx); err != nil {
			return fmt.Errorf("an output file cannot be copied: %w", err)
		}
	}
	return nil
}

// given returns the names at the hub.
func (o *outputs) given() []job.FileRef {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.names))
}

// uses returns the run's files, by their names in its history entry.
func (o *outputs) uses() queue.Uses {
	o.mu.Lock()
	defer o.mu.Unlock()
	names := slices.Collect(maps.Values(o.names))
	for _, part := range o.joined() {
		names = append(names, part.given()...)
	}
	if len(names) == 0 {
		return queue.Uses{}
	}
	indexes, members := o.run.d.Files.Uses(o.run.Job().Tenant, names)
	return queue.Uses{Indexes: indexes, Members: members}
}
