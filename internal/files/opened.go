package files

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
)

// opened is an output that its instance was asked for before it has a name at the hub: the answer's
// header has the ETag that names depend on, and its body is what will be copied. Asking for the
// header alone would cost another round trip to the instance, which may be far away.
type opened struct {
	from  *download
	leave func() // gives the copy's slot back
	end   context.CancelFunc
}

// open begins the copy of an output, or returns nil if its uplink is busy or the instance does not
// answer with the file before ctx ends. Nobody reads the body until the copy goes on, so there are
// no more of them than slots.
func (c *Collector) open(ctx context.Context, src Source) *opened {
	leave, ok := c.slots.tryEnter(c.uplink(src.Instance))
	if !ok {
		return nil
	}
	life, end := context.WithCancel(c.ctx)
	stop := context.AfterFunc(ctx, end)
	from, err := startDownload(life, c.fetch, src, c.patience)
	o := &opened{from: from, leave: sync.OnceFunc(leave), end: end}
	if err != nil || !stop() {
		o.drop()
		return nil
	}
	return o
}

// drop ends the connection and gives the slot back. It may be called twice, and on nil.
func (o *opened) drop() {
	if o == nil {
		return
	}
	o.end()
	if o.from != nil {
		o.from.drop()
	}
	o.leave()
}

// take returns the download for a copy of src that ends with ctx; nil if it is another file's. Call
// drop at the end of the copy.
func (o *opened) take(ctx context.Context, src Source) *download {
	if o == nil || o.from.src != src {
		return nil
	}
	o.from.ctx = ctx // for further connections
	context.AfterFunc(ctx, o.end)
	return o.from
}

// sources asks an instance which files it has under the names of outputs, in order, and opens as
// many of them as it may. cached says that the hub probably has the bytes already. Errors: ErrGone,
// ErrInstance.
func (t *Transfer) sources(ctx context.Context, outputs []job.FileRef, from Target, cached bool) (sources []Source, all []*opened, err error) {
	sources, all = make([]Source, len(outputs)), make([]*opened, len(outputs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(perUplink)
	for n, f := range outputs {
		sources[n] = Source{Instance: from.Name, Type: f.Type, Subfolder: f.Subfolder, Filename: f.Filename}
		if !sources[n].Viewable() {
			continue
		}
		group.Go(func() error {
			return panics.Do(t.log, "asking for an output", func() (err error) {
				if !cached {
					_ = panics.Do(t.log, "opening an output", func() error { all[n] = t.collector.open(ctx, sources[n]); return nil })
				}
				if all[n] != nil {
					sources[n].ETag = all[n].from.header.Get("ETag")
				} else {
					sources[n].ETag, err = etagOf(ctx, f, from)
				}
				return err
			})
		})
	}
	if err := group.Wait(); err != nil {
		dropAll(all)
		return nil, nil, err
	}
	boot := "" // an ETag tells files apart over any restart of hub or agent
	for _, src := range sources {
		if src.ETag == "" && src.Viewable() {
			boot = from.Boot
		}
	}
	for n := range sources {
		sources[n].Boot = boot
		if all[n] != nil {
			all[n].from.src = sources[n]
		}
	}
	return sources, all, nil
}

// etagOf asks for the ETag of an output.
func etagOf(ctx context.Context, f job.FileRef, from Target) (string, error) {
	info, found, err := from.Instance.Stat(ctx, f)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrInstance, err)
	case !found:
		return "", ErrGone // a cached run may name a file that somebody has deleted
	}
	return info.ETag, nil
}

func dropAll(all []*opened) {
	for _, o := range all {
		o.drop()
	}
}
