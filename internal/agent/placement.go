package agent

import (
	"strings"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

const (
	// maxAncestors bounds how far up the processes that a server has started are
	// followed.
	maxAncestors = 16
	// leastOthers is how much memory of others on a GPU counts: the driver and a desktop
	// always have some. It is told in steps of othersStep.
	leastOthers, othersStep = 512 * mebibyte, 64 * mebibyte
	// othersEdge is a change that hubs are told at once.
	othersEdge = 1024 * mebibyte
)

// placement is what is known of the GPU of a server.
type placement struct {
	// boot is the process that it was found for.
	boot int64
	// id is the driver's id of the GPU and split whether it is several; pid is the
	// server's process. Both are empty if they are not known.
	id    string
	split bool
	pid   int
	// others is the GPU memory that other programs hold, in bytes; 0 if that is not
	// known. use is how busy they keep it, in percent, known while no server of ours is.
	others int64
	use    int
}

// place finds the GPU of a server by one look, in this order: what the operator says, the
// GPU on which its process computes, its --cuda-device, and the only GPU there is of its
// kind. What was found for the same process before stays.
func (i *instance) place(s gpuSample, p processes) placement {
	now := placement{boot: i.seen.Boot}
	if i.at.boot == now.boot {
		now = i.at
	}
	now.others, now.use = 0, 0
	if !i.seen.Up || i.seen.GPUType != "cuda" || !onThisMachine(i.url) {
		return placement{boot: now.boot}
	}
	if pid, gpus := i.process(s, p); pid != 0 {
		now.pid = pid
		if len(gpus) == 1 {
			now.id = gpus[0]
		}
	}
	kind := gpuKind(i.seen)
	if c, ok := s.card(func(c card) bool { return c.id == i.target.gpu }); ok {
		now.id = c.id
	}
	if now.id == "" && i.seen.CUDADevice != "" {
		// CUDA numbers them by speed, the driver's tool by slot: where the kinds differ,
		// the number may mean another one.
		if c, ok := s.card(func(c card) bool { return c.index == i.seen.CUDADevice }); ok && c.name == kind {
			now.id = c.id
		}
	}
	if now.id == "" && s.lost == 0 { // else it may be the one that is lost
		if c, ok := s.card(func(c card) bool { return len(s.cards) == 1 || c.name == kind }); ok {
			now.id = c.id
		}
	}
	c, ok := s.card(func(c card) bool { return c.id == now.id })
	if !ok {
		return placement{boot: now.boot, pid: now.pid}
	}
	now.split = c.split
	return now
}

// process finds the server's process among those that compute on GPUs, by its command
// line, and the GPUs on which it does. pid is 0 if it is not there, or if several could be
// it.
func (i *instance) process(s gpuSample, p processes) (pid int, gpus []string) {
	if i.seen.Command == "" {
		return 0, nil
	}
	for _, a := range s.apps {
		switch command := p.command(a.pid); {
		case command != i.seen.Command && !strings.HasSuffix(command, "\x00"+i.seen.Command):
		case pid != 0 && pid != a.pid:
			return 0, nil
		default:
			pid, gpus = a.pid, append(gpus, a.gpu)
		}
	}
	return pid, gpus
}

// gpuKind is the name of a server's GPU as the driver's tool has it: of
// "cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync".
func gpuKind(o comfyui.Observation) string {
	name, _, _ := strings.Cut(o.GPU, " : ")
	if device, rest, ok := strings.Cut(name, " "); ok && strings.HasPrefix(device, "cuda:") {
		name = rest
	}
	return strings.TrimSpace(name)
}

// othersMemory says for each GPU how much of its memory others hold than the servers of
// this agent and what these have started. A GPU is left out if that is not known: then a
// server has a GPU or a process that was not found.
func othersMemory(s gpuSample, instances []*instance, p processes) map[string]int64 {
	others := map[string]int64{}
	if !s.listed {
		return others
	}
	own := map[int]bool{}
	unknown := map[string]bool{}
	for _, i := range instances {
		switch {
		case !i.seen.Up || i.seen.GPUType != "cuda" || !onThisMachine(i.url):
		case i.at.id == "":
			return others
		case i.at.pid == 0:
			unknown[i.at.id] = true
		default:
			own[i.at.pid] = true
		}
	}
	ours := map[string]int64{}
	for _, a := range s.apps {
		if !startedBy(a.pid, own, p) {
			continue
		}
		ours[a.gpu] += a.used
		if a.used < 0 {
			unknown[a.gpu] = true
		}
	}
	for _, c := range s.cards {
		if unknown[c.id] || c.split || c.used < 0 {
			continue
		}
		rest := c.used - ours[c.id]
		if rest < leastOthers {
			rest = 0
		}
		others[c.id] = rest / othersStep * othersStep
	}
	return others
}

// startedBy reports whether a process is one of some, or was started by one.
func startedBy(pid int, own map[int]bool, p processes) bool {
	for range maxAncestors {
		if own[pid] {
			return true
		}
		if pid <= 1 {
			return false
		}
		pid = p.parent(pid)
	}
	return false
}
