package waits

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"
)

// Nine of ten prompts are pictures, one is a video. This is the mix that hurts: a
// picture behind a video waits sixty times as long as it runs.
const (
	picture   = 4 * time.Second
	video     = 120 * time.Second
	videoEach = 10
)

// load is the share of the time for which the line benchmarks keep instances busy.
const load = 0.8

// stepTakes is how long a step of a video takes. Each is a message and a picture; by their number the
// hub tells videos from pictures before it has seen any.
const stepTakes = 4 * time.Second

// arrival is a prompt of a schedule, in simulated time.
type arrival struct {
	at, takes time.Duration
	// model is the checkpoint that the prompt loads, by number; 0 for none.
	model int
}

// arrivals draws prompts that keep instances busy for a share of the time: random
// moments, and videos anywhere among the pictures.
func arrivals(seed uint64, instances, count int, load float64) []arrival {
	random := rand.New(rand.NewPCG(seed, 8))
	between := float64(meanTakes()) / (float64(instances) * load)
	list := make([]arrival, count)
	var at time.Duration
	for n := range list {
		at += time.Duration(random.ExpFloat64() * between)
		list[n] = arrival{at: at, takes: picture}
	}
	for _, n := range random.Perm(count)[:count/videoEach] {
		list[n].takes = video
	}
	return list
}

// pictures is arrivals without videos, closer together in return.
func pictures(seed uint64, instances, count int, load float64) []arrival {
	list := arrivals(seed, instances, count, load)
	for n := range list {
		list[n].takes = picture
		list[n].at = time.Duration(float64(list[n].at) * picture.Seconds() / meanTakes().Seconds())
	}
	return list
}

// meanTakes is the mean run time of the prompts that arrivals draws.
func meanTakes() time.Duration { return (picture*(videoEach-1) + video) / videoEach }

// body is a POST /prompt of a schedule's prompt. Each is somebody else's: a client's own prompts keep
// their order. Each nonce makes another picture, so that no instance has it in its cache.
func (a arrival) body(client string, nonce int) string {
	work := fmt.Sprintf(`{"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": %g, "steps": %d, "nonce": %d}}`, a.takes.Seconds(), max(4, int(a.takes/stepTakes)), nonce)
	image := fmt.Sprintf(`"1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": %d}}`, nonce)
	if a.model != 0 {
		image = fmt.Sprintf(`"1": {"class_type": "VAEDecode", "inputs": {"samples": ["4", 0], "vae": ["5", 2]}},
			"4": {"class_type": "EmptyLatentImage", "inputs": {"width": 16, "height": 16, "batch_size": 1}},
			"5": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": %q}}`, modelFile(a.model))
	}
	return fmt.Sprintf(`{"client_id": %q, "prompt": {%s, "2": %s, "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "waits"}}}}`, client, image, work)
}

// ideal is the mean wait if one queue gave the prompts to the instances in the order
// of their arrival and nothing took any time.
func ideal(list []arrival, instances int) time.Duration {
	free := make(moments, instances)
	var waited time.Duration
	for _, a := range list {
		start := max(a.at, free[0])
		waited += start - a.at
		free[0] = start + a.takes
		heap.Fix(&free, 0)
	}
	return waited / time.Duration(len(list))
}

// moments is a heap of the times at which instances are free.
type moments []time.Duration

// Len implements heap.Interface.
func (m moments) Len() int { return len(m) }

// Less implements heap.Interface.
func (m moments) Less(i, j int) bool { return m[i] < m[j] }

// Swap implements heap.Interface.
func (m moments) Swap(i, j int) { m[i], m[j] = m[j], m[i] }

// Push implements heap.Interface.
func (m *moments) Push(x any) { *m = append(*m, x.(time.Duration)) }

// Pop implements heap.Interface.
func (m *moments) Pop() any {
	old := *m
	last := old[len(old)-1]
	*m = old[:len(old)-1]
	return last
}
