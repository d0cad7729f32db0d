package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/userdata"
)

// errNoInstance says that the instance that has a file is not connected.
var errNoInstance = errors.New("hub: instance not connected")

// spoolFolder is the folder in Identity.Data for what is on its way.
const spoolFolder = "spool"

// openFiles builds what keeps inputs and outputs. The collector of outputs and
// the dispatcher need each other; it asks for an instance only when the
// dispatcher has given it an output of one.
func (h *Hub) openFiles(ctx context.Context) (err error) {
	spool := filepath.Join(h.id.Data, spoolFolder)
	if err := os.MkdirAll(spool, 0o700); err != nil {
		return err
	}
	location := h.id.Storage
	if location == "" {
		location = filepath.Join(h.id.Data, "files")
	}
	if h.storage, err = files.OpenStorage(ctx, location); err != nil {
		return err
	}
	h.users = userdata.New(userBlobs{h.storage}, func(tenant string) userdata.Limits {
		l := h.limitsOf(tenant)
		return userdata.Limits{Bytes: l.Userdata, Files: l.UserdataFiles}
	})
	h.held = &held{storage: h.storage}
	if h.known, err = newLastKnown(h.storage); err != nil {
		return err
	}
	log := h.log()
	h.store = files.New(h.db, h.storage, files.Options{SpoolDir: spool, Logger: log, Limits: func(tenant string) files.Limits {
		l := h.limitsOf(tenant)
		return files.Limits{Bytes: l.Inputs, Files: l.InputFiles}
	}})
	h.copies = files.NewCollector(h.store, h.fetch, files.CollectorOptions{Logger: log})
	return h.checkShared(ctx)
}

// openViews builds what shows files and takes them in. It comes after the
// dispatcher, which it asks for instances and for the fleet's version.
func (h *Hub) openViews() {
	log := h.log()
	h.view = files.NewView(h.store, h.fetch, files.ViewOptions{
		Strict:        func() bool { return h.dispatch.Version().AtLeast(0, 28, 0) },
		Missing:       h.ofInstance,
		Preview:       h.preview,
		PictureMemory: func() int64 { return h.Settings().PictureMemory },
		Away:          h.metrics.faults.Inc,
		Logger:        log,
	})
	h.uploads = files.NewUploads(h.store, h.view, files.UploadOptions{
		MaxSize: func() int64 { return h.Settings().MaxUpload }, Away: h.metrics.faults.Inc, Logger: log, Full: h.refuseUpload,
	})
}

// checkShared refuses a storage that the other hubs do not share: files of one
// hub could not be seen through another. Where that cannot be told now, because
// Redis or the object store is away, the housekeeping goes on asking.
func (h *Hub) checkShared(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := h.store.CheckShared(ctx, h.self)
	if errors.Is(err, files.ErrNotShared) {
		return fmt.Errorf("%w; give all of them the same storage", err)
	}
	if err != nil {
		h.log().Warn("cannot tell yet whether the hubs share one storage", "error", err)
	}
	return nil
}

func (h *Hub) getView(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	h.view.ServeView(w, r, a.Tenant, a.Turn())
}

func (h *Hub) postUpload(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	h.uploads.ServeImage(w, r, a.Tenant)
}

func (h *Hub) postMask(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	h.uploads.ServeMask(w, r, a.Tenant, a.Turn())
}

// refuseUpload answers a user whose tenant has uploaded all that it may. Web UIs
// show the status with its reason phrase.
func (h *Hub) refuseUpload(w http.ResponseWriter, limit string) {
	e := api.Error{
		Status: http.StatusInsufficientStorage, Kind: "tenant_inputs_full",
		Message: "Your uploads take all the space that they may",
		Details: "The operator can raise it, or let unused uploads go (input_age).",
	}
	if limit == "input_files" {
		e.Message = "You have uploaded as many files as you may"
	}
	h.requests.RefuseFull(w, limit, e)
}

// fetch reads a file from the instance that made it.
func (h *Hub) fetch(ctx context.Context, src files.Source, header http.Header) (*http.Response, error) {
	client := h.dispatch.ByName(src.Instance)
	if client == nil {
		return nil, errNoInstance
	}
	return client.View(ctx, comfyui.FileRef(src.Ref()), header)
}

// ofInstance finds an input that lies on an instance and not at the hub: what
// /object_info offers, the web interface also shows. Only where nobody has
// logged in, and nothing that a hub may have put there: that is somebody's.
func (h *Hub) ofInstance(ctx context.Context, tenant string, ref files.Ref) (files.Source, bool) {
	if ref.Type != files.TypeInput || tenant != job.DefaultTenant {
		return files.Source{}, false
	}
	for _, name := range h.stock.offering(ref.Value(false)) {
		client := h.dispatch.ByName(name)
		if client == nil {
			continue
		}
		if put, err := h.store.Remembers(ctx, name, ref); put || err != nil {
			continue
		}
		info, found, err := client.Stat(ctx, comfyui.FileRef(ref))
		if err != nil || !found {
			continue
		}
		return files.Source{
			Instance: name, Type: ref.Type, Subfolder: ref.Subfolder, Filename: ref.Filename, ETag: info.ETag, Boot: h.bootOf(name),
		}, true
	}
	return files.Source{}, false
}

// preview asks the instance that made a file for a picture in another form.
func (h *Hub) preview(ctx context.Context, src files.Source, q url.Values) (*http.Response, error) {
	client := h.dispatch.ByName(src.Instance)
	if client == nil {
		return nil, errNoInstance
	}
	return client.ViewQuery(ctx, q, nil)
}

// collect gives outputs their names at the hub and begins to copy them.
func (h *Hub) collect(ctx context.Context, tenant string, outputs []comfyui.FileRef, instance string, from *comfyui.Client) ([]comfyui.FileRef, func(context.Context) error, error) {
	boot := "" // an ETag tells files apart over any restart of hub or agent
	sources := make([]files.Source, len(outputs))
	for n, f := range outputs {
		src := files.Source{Instance: instance, Type: f.Type, Subfolder: f.Subfolder, Filename: f.Filename}
		if src.Viewable() {
			info, found, err := from.Stat(ctx, f)
			if err == nil && !found {
				err = files.ErrGone // a cached run may name a file that somebody has deleted
			}
			if err != nil {
				return nil, nil, err
			}
			if src.ETag = info.ETag; src.ETag == "" {
				boot = h.bootOf(instance)
			}
		}
		sources[n] = src
	}
	for n := range sources {
		sources[n].Boot = boot
	}
	refs, err := h.store.AllotOutputs(ctx, tenant, sources)
	if err != nil {
		return nil, nil, err
	}
	names := make([]comfyui.FileRef, len(refs))
	copying, cancel := context.WithTimeout(context.WithoutCancel(ctx), copyTimeout)
	var group errgroup.Group
	for n, ref := range refs {
		names[n] = comfyui.FileRef(ref)
		if sources[n].Viewable() {
			group.Go(func() error { return h.copy(copying, tenant, ref) })
		}
	}
	done := make(chan struct{})
	go func() {
		defer cancel()
		err = group.Wait()
		close(done)
	}()
	return names, func(ctx context.Context) error {
		select {
		case <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil
}

// copy brings one output to the storage. A Redis that is away meanwhile is
// waited for: the work of a run must not be lost because Redis restarts.
func (h *Hub) copy(ctx context.Context, tenant string, ref files.Ref) error {
	pauses := retry.New(copyPause, copyPause)
	for {
		_, err := h.copies.Collect(ctx, tenant, ref)
		if !errors.Is(err, redis.ErrAway) {
			return err
		}
		h.log().Warn("Redis is away, will try again", "step", "copy an output", "error", err)
		select {
		case <-time.After(pauses.Next()):
		case <-h.copies.Done():
			return err // the hub that comes next looks for the run's outputs
		case <-ctx.Done():
			return err
		}
	}
}

// copyPause is the longest time between two tries of a copy while Redis is away.
const copyPause = time.Second

// bootOf tells one life of an instance's process from the next.
func (h *Hub) bootOf(instance string) string {
	i, _ := h.fleet.Instance(instance)
	return strconv.FormatInt(i.Report.Boot, 36)
}

// copyTimeout bounds the copying of one output; a video over a slow line may
// take its time.
const copyTimeout = 30 * time.Minute

// onInstance is an instance as package files needs it.
type onInstance struct{ client *comfyui.Client }

func (i onInstance) Stat(ctx context.Context, ref files.Ref) (etag string, size int64, found bool, err error) {
	info, found, err := i.client.Stat(ctx, comfyui.FileRef(ref))
	return info.ETag, info.Size, found, err
}

func (i onInstance) View(ctx context.Context, ref files.Ref) (io.ReadCloser, error) {
	resp, err := i.client.View(ctx, comfyui.FileRef(ref), nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, &comfyui.StatusError{Method: http.MethodGet, Path: "/view", Status: resp.StatusCode}
	}
	return resp.Body, nil
}

func (i onInstance) Upload(ctx context.Context, ref files.Ref, overwrite bool, body io.Reader, size int64) (files.Ref, error) {
	got, err := i.client.Upload(ctx, comfyui.FileRef(ref), overwrite, body, size)
	return files.Ref(got), err
}
