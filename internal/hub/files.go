package hub

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/lastknown"
	"github.com/comfyhub/comfyhub/internal/metrics"
	"github.com/comfyhub/comfyhub/internal/retention"
	"github.com/comfyhub/comfyhub/internal/userdata"
	"github.com/comfyhub/comfyhub/internal/view"
)

// spoolFolder is the folder in Identity.Data for what is on its way.
const spoolFolder = "spool"

// notesFolder is the folder in Identity.Data for what Redis may lose: see [queue.Recovery.Heal] and
// [files.Store.Heal].
const notesFolder = "notes"

// diskReserve is how much of a disk is kept free from what arrives, in bytes; a tenth of a small
// disk.
const diskReserve = 1 << 30

// roomOn returns a function that tells how much may arrive on a disk now.
func roomOn(disk *metrics.Disk) func() int64 {
	return func() int64 {
		free, size, ok := disk.Space()
		if !ok {
			return math.MaxInt64 / 2 // unknown
		}
		return int64(free) - min(diskReserve, int64(size/10))
	}
}

// openStorage opens the storage, where the keys are and all files.
func (h *Hub) openStorage(ctx context.Context) (err error) {
	location := h.id.Storage
	if location == "" {
		location = filepath.Join(h.id.Data, "files")
	}
	if h.storage, err = files.OpenStorage(ctx, location); err != nil {
		return err
	}
	if h.id.Network != nil {
		h.storage.Behind(h.id.Network.Storage)
	}
	h.openDisks()
	h.recallMark()
	return nil
}

// openFiles builds what keeps inputs and outputs. The collector of outputs and the dispatcher need
// each other; the collector only asks for an instance once the dispatcher has given it one of the
// instance's outputs.
func (h *Hub) openFiles() (err error) {
	spool := filepath.Join(h.id.Data, spoolFolder)
	h.without(os.MkdirAll(spool, 0o700), "files and large prompts are refused")
	h.users = userdata.New(userBlobs{h.storage}, func(tenant string) userdata.Limits {
		l := h.tenants.Limits(tenant)
		return userdata.Limits{Bytes: l.Userdata, Files: l.UserdataFiles}
	})
	h.bond, h.held = files.NewBond(h.db, h.storage), files.NewHeld(h.storage)
	if h.known, err = lastknown.New(h.storage, h.log()); err != nil {
		return err
	}
	log := h.log()
	h.store = files.New(h.db, h.storage, files.Options{SpoolDir: spool, Pushed: h.measure.Pushed, Fetched: h.measure.Fetched, Logger: log, Trash: func() time.Duration { return retention.SweepAge }, Limits: func(tenant string) files.Limits {
		l := h.tenants.Limits(tenant)
		return files.Limits{Bytes: l.Inputs, Files: l.InputFiles}
	}})
	h.store.Recall(filepath.Join(h.id.Data, notesFolder, "names"))
	h.kept = retention.NewKeptFiles(h.tidies, h.clients.ByName, log)
	h.copies = files.NewCollector(h.store, files.From(h.clients), files.CollectorOptions{Logger: log, Uplink: h.uplink, Kept: h.kept.Add})
	h.transfer = files.NewTransfer(h.store, h.copies, h.held, log)
	return nil
}

// closeNotes writes what the next process may have to put back into Redis.
func (h *Hub) closeNotes() {
	if h.queue != nil {
		h.queue.Close()
	}
	if h.store != nil {
		h.store.Close()
	}
}

// uplink names the machine of an instance, whose line its files come over.
func (h *Hub) uplink(instance string) string {
	if i, known := h.fleet.Instance(instance); known && i.Agent != "" {
		return "agent " + i.Agent
	}
	return instance
}

// tidies reports whether the agent of an instance deletes output files that the hub keeps.
func (h *Hub) tidies(instance string) bool {
	i, known := h.fleet.Instance(instance)
	return known && i.Agent != "" && i.Report.Tidies
}

// openViews builds what shows files and takes them in. It comes after the dispatcher, which it asks
// for instances and for the fleet's version.
func (h *Hub) openViews() {
	h.folders = &view.Folders{Store: h.store, Inventory: h.inventory, Logins: &h.logins, Clients: h.clients, Fleet: h.fleet}
	log := h.log()
	h.view = files.NewView(h.store, files.From(h.clients), files.ViewOptions{
		Missing:       h.folders.OfInstance,
		Preview:       files.PreviewFrom(h.clients),
		PictureMemory: func() int64 { return h.Settings().PictureMemory },
		Away:          h.measure.Away,
		Logger:        log,
	})
	h.uploads = files.NewUploads(h.store, h.view, files.UploadOptions{
		MaxSize: func() int64 { return h.Settings().MaxUpload }, Away: h.measure.Away, Logger: log,
	})
}

// View shows files. It is available after the first Start.
func (h *Hub) View() *files.View { return h.view }

// Uploads takes inputs in. It is available after the first Start.
func (h *Hub) Uploads() *files.Uploads { return h.uploads }

// Held returns the pictures that are waiting for the instance of their job. It is available after
// the first Start.
func (h *Hub) Held() *files.Held { return h.held }

// storageIsFull reports whether the storage has no room for the trash.
func (h *Hub) storageIsFull() bool {
	return errors.Is(h.storage.Health().Err(), syscall.ENOSPC) || slices.ContainsFunc(h.disks, func(d *metrics.Disk) bool {
		return d.Folder() == "storage" && d.Scarce()
	})
}
