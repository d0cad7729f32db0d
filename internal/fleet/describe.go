package fleet

import "github.com/comfyhub/comfyhub/internal/comfyui"

// Describe turns what was observed of a ComfyUI server into its report. Agents
// use it for their instances, hubs for those without an agent.
func Describe(name, url string, o comfyui.Observation) InstanceReport {
	r := InstanceReport{
		Name: name, URL: url, Kind: KindComfyUI,
		Up: o.Up, Reason: o.Reason,
		Queue: o.QueueRemaining, Foreign: o.Foreign,
		Running: o.Running, Job: o.RunningMark.Job, Fence: o.RunningMark.Fence,
		Version: o.Version.Text, GPU: o.GPU, GPUType: o.GPUType, VRAMTotal: o.VRAMTotal, VRAMFree: o.VRAMFree,
		ObjectInfo: o.ObjectInfoHash, Boot: o.Boot,
	}
	if !o.Since.IsZero() {
		r.Since = o.Since.UnixMilli()
	}
	return r
}
