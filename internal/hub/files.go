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
// [files.Recovery.Heal].
const notesFolder = "notes"

// openStorage opens the storage, where the keys are and all files.
func (h *Hub) openStorage(ctx context.Context) (err error) {
	location := h.id.Storage
	if location == "" {
		location = filepath.Join(h.id.Data, "files")
	}
	if h.Storage, err = files.OpenStorage(ctx, location); err != nil {
		return err
	}
	if h.id.Network != nil {
		h.Storage.Behind(h.id.Network.Storage)
	}
	// The disks that must not fill up.
	h.Disks = []*metrics.Disk{metrics.NewDisk("data", h.id.Data)}
	if dir := h.Storage.Dir(); dir != "" {
		h.Disks = append(h.Disks, metrics.NewDisk("storage", dir))
	}
	if h.id.Storage != "" { // else it is in the data folder, and there whenever that is
		if mark := h.data.Mark(h.id.Storage); mark != "" {
			h.Storage.Health().Expect(mark)
		}
	}
	return nil
}

// openFiles builds what keeps inputs and outputs. The collector of outputs and the dispatcher need
// each other; the collector only asks for an instance once the dispatcher has given it one of the
// instance's outputs.
func (h *Hub) openFiles() (err error) {
	spool := filepath.Join(h.id.Data, spoolFolder)
	h.data.Without(os.MkdirAll(spool, 0o700), "files and large prompts are refused")
	h.Users = userdata.New(userdata.Blobs{Storage: h.Storage}, func(tenant string) userdata.Limits {
		l := h.Tenants.Limits(tenant)
		return userdata.Limits{Bytes: l.Userdata, Files: l.UserdataFiles}
	})
	h.Bond, h.Held = files.NewBond(h.DB, h.Storage), files.NewHeld(h.Storage)
	if h.LastKnown, err = lastknown.New(h.Storage, h.log()); err != nil {
		return err
	}
	log := h.log()
	h.Store = files.New(h.DB, h.Storage, files.Options{SpoolDir: spool, Pushed: h.Metrics.Pushed, Fetched: h.Metrics.Fetched, Logger: log, Trash: func() time.Duration { return retention.SweepAge }, Limits: func(tenant string) files.Limits {
		l := h.Tenants.Limits(tenant)
		return files.Limits{Bytes: l.Inputs, Files: l.InputFiles}
	}})
	h.Store.Recovery().Recall(filepath.Join(h.id.Data, notesFolder, "names"))
	h.kept = retention.NewKeptFiles(h.tidies, h.Clients.ByName, log)
	h.copies = files.NewCollector(h.Store, files.From(h.Clients), files.CollectorOptions{
		Logger: log, Uplink: h.uplink, Kept: h.kept.Add, Room: h.storageRoom,
	})
	h.Transfer = files.NewTransfer(h.Store, h.copies, h.Held, log)
	return nil
}

// closeNotes writes what the next process may have to put back into Redis.
func (h *Hub) closeNotes() {
	if h.Queue != nil {
		h.Queue.Close()
	}
	if h.Store != nil {
		h.Store.Recovery().Close()
	}
}

// uplink names the machine of an instance, whose line its files come over.
func (h *Hub) uplink(instance string) string {
	if i, known := h.Fleet.Instance(instance); known && i.Agent != "" {
		return "agent " + i.Agent
	}
	return instance
}

// tidies reports whether the agent of an instance deletes output files that the hub keeps.
func (h *Hub) tidies(instance string) bool {
	i, known := h.Fleet.Instance(instance)
	return known && i.Agent != "" && i.Report.Tidies
}

// openViews builds what shows files and takes them in. It comes after the dispatcher, which it asks
// for instances and for the fleet's version.
func (h *Hub) openViews() {
	h.Folders = &view.Folders{Store: h.Store, Placed: files.NewPlaced(h.DB), Inventory: h.Inventory, Logins: &h.logins, Clients: h.Clients, Fleet: h.Fleet}
	log := h.log()
	h.View = files.NewView(h.Store, files.From(h.Clients), files.ViewOptions{
		Missing:       h.Folders.OfInstance,
		Preview:       files.PreviewFrom(h.Clients),
		PictureMemory: func() int64 { return h.Settings().PictureMemory },
		Away:          h.Metrics.Away,
		Logger:        log,
	})
	h.Uploads = files.NewUploads(h.Store, h.View, files.UploadOptions{
		MaxSize: func() int64 { return h.Settings().MaxUpload }, Away: h.Metrics.Away, Logger: log,
	})
}

// storageRoom returns how much may be added to the storage, in bytes. An object store has no end.
func (h *Hub) storageRoom() int64 {
	for _, d := range h.Disks {
		if d.Folder() == "storage" {
			return d.Room()
		}
	}
	return math.MaxInt64
}

// storageIsFull reports whether the storage has no room for the trash.
func (h *Hub) storageIsFull() bool {
	return errors.Is(h.Storage.Health().Err(), syscall.ENOSPC) || slices.ContainsFunc(h.Disks, func(d *metrics.Disk) bool {
		return d.Folder() == "storage" && d.Scarce()
	})
}
