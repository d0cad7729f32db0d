package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
)

// Report is everything an agent knows of its instances at one moment.
type Report struct {
	// Agent is the agent's name, unique in the fleet.
	Agent string `json:"agent"`
	// Boot is when the agent process started, in milliseconds since the Unix epoch
	// by its own clock, read once. A later boot wins.
	Boot int64 `json:"boot"`
	// Seq counts the reports of one boot, from 1.
	Seq uint64 `json:"seq"`
	// Instances are all instances of the agent; one that is left out is gone.
	Instances []InstanceReport `json:"instances"`
	// Sender is who sent the report. It is not part of the encoding: the receiver
	// determines it.
	Sender Sender `json:"-"`
}

// Sender is the agent that a report is proven to come from. The zero value proves
// nothing, as with agents of earlier versions.
type Sender struct {
	// Key is the public key that signed the report.
	Key string
	// Addr is where the agent says it is. It stays the same for one boot.
	Addr netip.Addr
	// Unmet means that nothing proves that: no connection of a member has come from there.
	Unmet bool
	// Tunnel means that the report came through a tunnel that the hub has with the
	// machine of this name. Its instances are reached there, and nowhere else.
	Tunnel bool
}

// InstanceReport is what an agent, or the hub itself for an instance without one,
// has observed of an instance.
type InstanceReport struct {
	// Name is unique in the fleet.
	Name string `json:"name"`
	// URL is where the hub reaches the instance, path prefix included.
	URL string `json:"url"`
	// Direct means that URL is the instance's own address, not its agent's.
	Direct bool `json:"direct,omitempty"`
	// Kind is KindComfyUI, KindA1111 or KindWorker; empty means KindComfyUI.
	Kind string `json:"kind,omitempty"`
	// Up means that the instance answers; Reason says why it does not.
	Up     bool   `json:"up,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Queue counts the prompts that run and wait there; Foreign counts those that
	// no hub sent.
	Queue   int `json:"queue,omitempty"`
	Foreign int `json:"foreign,omitempty"`
	// Running is the instance's id of the running prompt; Job and Fence identify
	// the hub's job, and are empty for a foreign one.
	Running string `json:"running,omitempty"`
	Job     string `json:"job,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	// Load says what else keeps the GPU busy; empty if nothing does.
	Load string `json:"load,omitempty"`
	// Version is the instance's comfyui_version.
	Version string `json:"version,omitempty"`
	GPU     string `json:"gpu,omitempty"`
	GPUType string `json:"gpu_type,omitempty"`
	// VRAMTotal and VRAMFree are in bytes.
	VRAMTotal int64 `json:"vram_total,omitempty"`
	VRAMFree  int64 `json:"vram_free,omitempty"`
	// OthersMemory is the memory of its GPU that programs hold which are no instance, in
	// bytes; 0 if that is not known. OthersUse is how busy they keep it, in percent, as far
	// as that can be told: only while no instance works there.
	OthersMemory int64 `json:"others_memory,omitempty"`
	OthersUse    int   `json:"others_use,omitempty"`
	// DiskFree and DiskSize are of the fullest disk into which the instance writes, in
	// bytes; 0 if none is known. DiskFull means that it takes no more work.
	DiskFree int64 `json:"disk_free,omitempty"`
	DiskSize int64 `json:"disk_size,omitempty"`
	DiskFull bool  `json:"disk_full,omitempty"`
	// Tidies means that the agent deletes output files of which it hears that the hub
	// keeps them.
	Tidies bool `json:"tidies,omitempty"`
	// Device tells the GPU from others: instances that name the same one share its memory.
	// It is the driver's id, or a name that holds for this agent alone. Empty if it is not
	// known.
	Device string `json:"device,omitempty"`
	// ObjectInfo is the hash of the instance's object_info, empty until read.
	ObjectInfo string `json:"object_info,omitempty"`
	// Boot tells one run of the instance's process from the next, in milliseconds
	// since the Unix epoch.
	Boot int64 `json:"boot,omitempty"`
	// Draining means that the agent stops: the instance gets no job any more.
	Draining bool `json:"draining,omitempty"`
	// Restarting means that somebody has asked for a restart of the instance's process,
	// which has not happened yet. Restarted means that the process of this Boot was
	// started by one.
	Restarting bool `json:"restarting,omitempty"`
	Restarted  bool `json:"restarted,omitempty"`
	// Restarts counts the restarts by the agent's command since the instance last went
	// well, RestartAt is when the next one is planned, in milliseconds since the Unix epoch
	// (0: none), and RestartError why the last one failed, if it did.
	Restarts     int    `json:"restarts,omitempty"`
	RestartAt    int64  `json:"restart_at,omitempty"`
	RestartError string `json:"restart_error,omitempty"`
	// Since is when the instance last came, went, or became idle or busy, in
	// milliseconds since the Unix epoch.
	Since int64 `json:"since,omitempty"`
}

const (
	// KindComfyUI is the kind of a ComfyUI instance.
	KindComfyUI = "comfyui"
	// KindWorker is that of a worker that fetches its jobs: it runs graphs, and has nothing
	// else of a ComfyUI.
	KindWorker = "worker"
	// KindA1111 is that of a server of A1111's API, which runs graphs and has nothing else of
	// a ComfyUI either.
	KindA1111 = "a1111"
	// KindOverflow is that of a slot of a serverless endpoint, which costs money by the second and
	// gets only jobs for which the others have no time.
	KindOverflow = "overflow"
)

// Idle reports whether the instance would start a prompt at once.
func (r InstanceReport) Idle() bool { return r.Up && r.Queue == 0 && r.Load == "" }

// Memory is how much GPU memory the instance can have, in bytes: all but what other programs
// hold. It is 0 if the size of the GPU's memory is not known.
func (r InstanceReport) Memory() int64 { return max(r.VRAMTotal-r.OthersMemory, 0) }

// MaxInstances bounds the instances of one agent; no machine has so many GPUs.
const MaxInstances = 256

const (
	// codecJSON is the version byte of the only encoding so far. Fields may be
	// added: old hubs ignore what they do not know, and new hubs read missing
	// fields as zero. A change of meaning needs another byte.
	codecJSON = 1
	// maxReport bounds its size in bytes.
	maxReport = 1 << 20
)

// ErrReport means that this version cannot read a report.
var ErrReport = errors.New("unreadable report")

// Encode encodes the report.
func (r Report) Encode() []byte {
	body, err := json.Marshal(r)
	if err != nil { // strings and integers only
		panic(fmt.Sprintf("fleet: encoding a report: %v", err))
	}
	return append([]byte{codecJSON}, body...)
}

// DecodeReport decodes what [Report.Encode] returned, here or in another version of
// the agent. The error is [ErrReport].
func DecodeReport(data []byte) (Report, error) {
	if len(data) == 0 {
		return Report{}, fmt.Errorf("%w: empty", ErrReport)
	}
	if len(data) > maxReport {
		return Report{}, fmt.Errorf("%w: %d bytes", ErrReport, len(data))
	}
	if data[0] != codecJSON {
		return Report{}, fmt.Errorf("%w: encoding %d is unknown, this program is older than the sender", ErrReport, data[0])
	}
	var r Report
	if err := json.Unmarshal(data[1:], &r); err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrReport, err)
	}
	if err := r.check(); err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrReport, err)
	}
	return r, nil
}
