package dispatch

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// daySpec describes simulated traffic and the fleet that it hits.
type daySpec struct {
	seed    uint64
	servers int
	// lasts is how long prompts keep arriving. load is the share of the fleet's time that they take
	// on average, not counting the loading of models.
	lasts time.Duration
	load  float64
	// videos is the share of the prompts that are videos.
	videos float64
	// pictureTakes and videoTakes are how long prompts run on a fast server, each equally often; 4
	// s and 120 s by default.
	pictureTakes, videoTakes []time.Duration
	// noise is the largest share of that by which a run takes more or less time.
	noise float64
	// models is how many models there are, loading how long it takes to load one.
	models  int
	loading time.Duration
	// tenants is how many tenants post, and callers how many callers each of them has.
	tenants, callers int
	// bursts is the share of the prompts that come twenty at once from one caller.
	bursts float64
	// uneven makes the load rise and fall by half in the course of the day, and gives one server in
	// three half the speed and no video model.
	uneven bool
	// priorities gives one prompt in ten a priority.
	priorities bool
	// weights are the tenants' shares, 1 by default.
	weights map[string]float64
}

const burstOf = 20

// arrival is a simulated prompt.
type arrival struct {
	at             time.Duration
	tenant, caller string
	kind           *dayKind
	// takes is how long the run takes on a fast server.
	takes    time.Duration
	priority int
}

// dayKind describes the prompts of one graph.
type dayKind struct {
	name, model string
	video       bool
	takes       time.Duration
	class       string
	requires    []byte
	graph       pyjson.Value
}

// newDayKind returns the kind of picture or video that a model makes. Its graph says how much work
// it is.
func newDayKind(model string, video bool, takes time.Duration) *dayKind {
	k := &dayKind{name: "Picture", model: model, video: video, takes: takes}
	if video {
		k.name = "Video"
	}
	needs := catalog.Requirements{
		Classes: []string{"Loader", k.name},
		Choices: []catalog.Choice{{Class: "Loader", Input: "model", Value: model}},
	}
	k.class, k.requires = needs.Signature(), needs.Encode()
	var err error
	k.graph, err = pyjson.Parse(fmt.Appendf(nil,
		`{"1":{"class_type":"Loader","inputs":{"model":%q}},"2":{"class_type":%q,"inputs":{"made":["1",0],"seconds":%g}}}`, model, k.name, takes.Seconds()))
	if err != nil {
		panic(err)
	}
	return k
}

// modelNames names the models of a simulation; the last one makes the videos.
func (s daySpec) modelNames() []string {
	var names []string
	for n := range s.models {
		names = append(names, fmt.Sprintf("model%d.safetensors", n))
	}
	return names
}

// kinds returns the kinds of the pictures and of the videos.
func (s daySpec) kinds() (pictures, videos []*dayKind) {
	ofPictures, ofVideos := s.pictureTakes, s.videoTakes
	if ofPictures == nil {
		ofPictures = []time.Duration{4 * time.Second}
	}
	if ofVideos == nil {
		ofVideos = []time.Duration{120 * time.Second}
	}
	names := s.modelNames()
	for _, name := range names {
		for _, takes := range ofPictures {
			pictures = append(pictures, newDayKind(name, false, takes))
		}
	}
	for _, takes := range ofVideos {
		videos = append(videos, newDayKind(names[len(names)-1], true, takes))
	}
	return pictures, videos
}

// meanOf returns how many seconds prompts of some kinds take on average.
func meanOf(kinds []*dayKind) float64 {
	var sum time.Duration
	for _, k := range kinds {
		sum += k.takes
	}
	return sum.Seconds() / float64(len(kinds))
}

// arrivals returns the prompts in the order in which they arrive. The same seed gives the same
// ones.
func (s daySpec) arrivals() (list []arrival) {
	random := rand.New(rand.NewPCG(s.seed, 1))
	pictures, videos := s.kinds()
	mean := meanOf(pictures)*(1-s.videos) + meanOf(videos)*s.videos
	power := 0.0
	for n := range s.servers {
		power += 1 / s.slowness(n)
	}
	perSecond := power * s.load / mean
	for at := 0.0; ; {
		rate := perSecond
		if s.uneven {
			rate *= 1 + math.Sin(2*math.Pi*at/s.lasts.Seconds())/2
		}
		at += random.ExpFloat64() / rate * (1 + s.bursts*(burstOf-1))
		if at >= s.lasts.Seconds() {
			break
		}
		tenant := random.IntN(s.tenants)
		a := arrival{
			at: time.Duration(at * float64(time.Second)), tenant: fmt.Sprint("t", tenant),
			caller: fmt.Sprintf("t%d/%d", tenant, random.IntN(s.callers)), kind: pictures[random.IntN(len(pictures))],
		}
		if random.Float64() < s.videos {
			a.kind = videos[0]
			if len(videos) > 1 {
				a.kind = videos[random.IntN(len(videos))]
			}
		}
		a.takes = a.kind.takes
		if s.noise > 0 {
			a.takes = time.Duration(float64(a.takes) * (1 + s.noise*(2*random.Float64()-1)))
		}
		if s.priorities && random.IntN(10) == 0 {
			a.priority = 5
		}
		count := 1
		if random.Float64() < s.bursts {
			count = burstOf
		}
		list = append(list, slices.Repeat([]arrival{a}, count)...)
	}
	slices.SortStableFunc(list, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return list
}

// slow reports whether a server is one of the slow ones.
func (s daySpec) slow(server int) bool { return s.uneven && server%3 == 2 }

// slowness is the factor by which a server is slower than a fast one.
func (s daySpec) slowness(server int) float64 {
	if s.slow(server) {
		return 2
	}
	return 1
}

// lasting returns how long a server takes for a prompt, given the model that it has loaded.
func (s daySpec) lasting(server int, a arrival, loaded string) time.Duration {
	took := time.Duration(float64(a.takes) * s.slowness(server))
	if loaded != a.kind.model {
		took += s.loading
	}
	return took
}

// able reports whether a server can run prompts of a kind.
func (s daySpec) able(server int, k *dayKind) bool { return !s.slow(server) || !k.video }

// dayWaits are the waits of a simulation, by kind and by tenant.
type dayWaits map[string][]time.Duration

func (w *dayWaits) add(a arrival, waited time.Duration) {
	if *w == nil {
		*w = dayWaits{}
	}
	for _, name := range []string{"all", a.kind.name, "tenant " + a.tenant} {
		(*w)[name] = append((*w)[name], waited)
	}
}

func (w dayWaits) mean(name string) time.Duration {
	var sum time.Duration
	for _, one := range w[name] {
		sum += one
	}
	return sum / time.Duration(max(len(w[name]), 1))
}

// longest returns the longest wait among the given share of the jobs, from 0 to 1, that waited
// least.
func (w dayWaits) longest(name string, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(w[name]))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

// String lists each kind and tenant.
func (w dayWaits) String() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(w)) {
		lines = append(lines, fmt.Sprintf("%-10s %7d jobs, wait: mean %7.2f s, p95 %7.2f s, longest %7.2f s", name, len(w[name]),
			w.mean(name).Seconds(), w.longest(name, 0.95).Seconds(), w.longest(name, 1).Seconds()))
	}
	return strings.Join(lines, "\n")
}

// roundRobin is what a balancer does that knows nothing about the servers: it gives prompts to the
// servers that can run them in turn, where each waits behind whatever came before.
func (s daySpec) roundRobin(list []arrival) (waits dayWaits) {
	free, loaded, turn := make([]time.Duration, s.servers), make([]string, s.servers), 0
	for _, a := range list {
		for turn++; !s.able(turn%s.servers, a.kind); turn++ {
		}
		n := turn % s.servers
		start := max(free[n], a.at)
		waits.add(a, start-a.at)
		free[n], loaded[n] = start+s.lasting(n, a, loaded[n]), a.kind.model
	}
	return waits
}

// firstCome is an ideal central queue that costs nothing: prompts begin in the order of arrival,
// each on the first server to become free among those that can run it.
func (s daySpec) firstCome(list []arrival) (waits dayWaits, switches int) {
	free, loaded := make([]time.Duration, s.servers), make([]string, s.servers)
	for _, a := range list {
		n := -1
		for m := range free {
			if s.able(m, a.kind) && (n < 0 || free[m] < free[n]) {
				n = m
			}
		}
		start := max(free[n], a.at)
		waits.add(a, start-a.at)
		if loaded[n] != a.kind.model {
			switches++
		}
		free[n], loaded[n] = start+s.lasting(n, a, loaded[n]), a.kind.model
	}
	return waits, switches
}
