package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

func TestPick(t *testing.T) {
	of := func(key, class, client, tenant string) job.Job {
		return job.Job{Key: key, Class: class, Requester: job.Requester{Client: client, Tenant: tenant}}
	}
	a, b, v, ada := of("a", "plain", "ann", ""), of("b", "plain", "bob", ""), of("v", "video", "vic", ""), of("ada", "plain", "", "ada")
	plain := Idle{Name: "plain", Classes: map[string]bool{"plain": true}}
	able := Idle{Name: "able", Classes: map[string]bool{"plain": true, "video": true}}
	last := func(i Idle, client string) Idle { i.LastClient = client; return i }
	own := func(i Idle, tenants ...string) Idle { i.Tenants = tenants; return i }
	refused := plain
	refused.Refused = map[string]bool{"a": true}
	type row struct {
		waiting []job.Job
		idle    []Idle
		want    string
	}
	each(t, map[string]row{
		"nothing waits":            {idle: []Idle{plain}},
		"nobody idle":              {waiting: []job.Job{a}},
		"first come, first served": {[]job.Job{a, b}, []Idle{plain}, "a:plain"},
		"a job that nobody can run holds up nobody":      {[]job.Job{v, a}, []Idle{plain}, "a:plain"},
		"the instance that ran this client last":         {[]job.Job{b}, []Idle{last(plain, "ann"), last(able, "bob")}, "b:able"},
		"never waits for the favourite":                  {[]job.Job{a, a}, []Idle{last(plain, "ann"), able}, "a:plain a:able"},
		"an instance of others":                          {[]job.Job{a, ada}, []Idle{own(plain, "ada", "ann")}, "ada:plain"},
		"one's own instance first":                       {[]job.Job{ada, a}, []Idle{plain, own(able, "ada")}, "ada:able a:plain"},
		"the able machine is kept for those who need it": {[]job.Job{a, v}, []Idle{able, plain}, "a:plain v:able"},
		"not again where it was refused":                 {[]job.Job{a}, []Idle{refused}, ""},
	}, func(t *testing.T, c row) {
		picked := Pick(c.waiting, c.idle, Warmth{})
		require.Empty(t, picked.Passed)
		require.Equal(t, c.want, pairsOf(t, picked))
	})
}

// each runs a test for each of the cases.
func each[C any](t *testing.T, cases map[string]C, test func(*testing.T, C)) {
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, c) })
	}
}

func TestReservations(t *testing.T) {
	t.Parallel()
	rs := Reservations{
		{Instances: "gpu1", Tenants: []string{"exact"}},
		{Instances: "gpu*", Tenants: []string{"prefix", "exact"}},
		{Instances: "*-big", Tenants: []string{"suffix"}},
		{Instances: "lab-*-a*z", Tenants: []string{"both"}},
		{Instances: "[::1]:8188", Tenants: []string{"literal"}},
	}
	for name, want := range map[string][]string{
		"gpu1": {"exact", "prefix"}, "gpu2": {"exact", "prefix"}, "gpu": {"exact", "prefix"}, "xgpu1": nil, "": nil,
		"a-big": {"suffix"}, "gpu-big": {"exact", "prefix", "suffix"}, "a-big-b": nil,
		"lab-1-abz": {"both"}, "lab--az": {"both"}, "lab-1-az-az": {"both"}, "lab-a": nil, "lab-1-a": nil,
		"[::1]:8188": {"literal"}, ":": nil,
	} {
		require.Equal(t, want, rs.For(name), name)
	}
	require.Nil(t, Reservations(nil).For("gpu1"))
	require.Equal(t, []string{"all"}, Reservations{{Instances: "*", Tenants: []string{"all"}}}.For("anything"))
}

func TestShortFirst(t *testing.T) {
	type row struct {
		jobs      string
		due, late []string
		off       bool // overtaking between tenants
		want      string
	}
	each(t, map[string]row{
		"a picture before videos":             {jobs: "t/a 120, t/b 120, t/c 4", want: "2 0 1"},
		"equals keep their order":             {jobs: "t/a 4, t/b 120, t/c 4, t/d 120, t/e 4", want: "0 2 4 1 3"},
		"a little shorter is not enough":      {jobs: "t/a 10, t/b 6", want: "0 1"},
		"half as long is":                     {jobs: "t/a 10, t/b 5", want: "1 0"},
		"not within a second":                 {jobs: "t/a 0.9, t/b 0.1", want: "0 1"},
		"a caller's own keep their order":     {jobs: "t/a 120, t/a 4", want: "0 1"},
		"nor are others held up by these":     {jobs: "t/a 120, t/a 4, t/b 4", want: "2 0 1"},
		"priorities hold":                     {jobs: "t/a 120!, t/b 4", want: "0 1"},
		"the front holds":                     {jobs: "t/a 120^, t/b 4", want: "0 1"},
		"bands hold":                          {jobs: "t/a 120, t/b 4~, u/c 4~", want: "0 1 2"},
		"a higher band may":                   {jobs: "t/a 120~, t/b 4, u/c 120~, u/d 4", want: "1 3 0 2"},
		"a higher priority may":               {jobs: "t/a 120, t/b 4!", want: "1 0"},
		"of another tenant":                   {jobs: "t/a 120!, u/b 4", want: "1 0"},
		"of another tenant, for a while":      {jobs: "t/a 120, u/b 4, t/c 4", due: []string{"0"}, want: "2 0 1"},
		"of another tenant, if it may":        {jobs: "t/a 120, u/b 4", off: true, want: "0 1"},
		"one that was overtaken for too long": {jobs: "t/a 120, t/b 60, t/c 4", late: []string{"0"}, want: "0 2 1"},
		"which holds up all behind it":        {jobs: "t/a 60, t/b 120, t/c 4", late: []string{"1"}, want: "0 1 2"},
		"by turns":                            {jobs: "t/a 120, t/b 30, t/c 5, t/d 1", want: "3 2 1 0"},
	}, func(t *testing.T, c row) {
		jobs, each := shortJobs(c.jobs)
		w := Warmth{Takes: lifted(jobs, each), Overtaking: !c.off, Due: map[string]bool{}, Late: map[string]bool{}}
		for _, key := range c.due {
			w.Due[key] = true
		}
		for _, key := range c.late {
			w.Late[key] = true
		}
		order, moved := ShortFirst(jobs, w)
		var keys []string
		for _, j := range order {
			keys = append(keys, j.Key)
		}
		require.Equal(t, c.want, strings.Join(keys, " "))
		for n, j := range order {
			behind := slices.ContainsFunc(order[n+1:], func(o job.Job) bool { return o.Key < j.Key })
			require.Equal(t, behind, moved[j.Key], j.Key)
		}
	})
}

// Under a load that never ends, short jobs wait much less than in order of arrival, and a long one
// is overtaken for at most as long as it takes to run itself.
func TestShortFirstIsBounded(t *testing.T) {
	t.Parallel()
	const servers, picture, video, bound, count = 8, 4 * time.Second, 120 * time.Second, 90 * time.Second, 4000
	simulate := func(short bool) (mean, longest time.Duration) {
		random := rand.New(rand.NewPCG(7, 7))
		var (
			start        = time.Unix(1_000_000, 0)
			waiting      []job.Job
			takes        = map[string]time.Duration{}
			arrives      = map[string]time.Duration{}
			free         [servers]time.Duration
			passed       Overtaken
			now, at, sum time.Duration
		)
		const between = float64(picture*9+video) / 10 / servers / 0.85
		coming := make([]job.Job, count)
		for n := range coming {
			at += time.Duration(random.ExpFloat64() * between)
			key := fmt.Sprint(n)
			coming[n] = job.Job{Key: key, Class: "any", Requester: job.Requester{Tenant: "t", Caller: key}}
			arrives[key], takes[key] = at, picture
			if random.IntN(10) == 0 {
				takes[key] = video
			}
		}
		for len(coming)+len(waiting) > 0 {
			for len(coming) > 0 && arrives[coming[0].Key] <= now {
				waiting, coming = append(waiting, coming[0]), coming[1:]
			}
			var idle []Idle
			for n := range free {
				if free[n] <= now {
					idle = append(idle, Idle{Name: fmt.Sprint(n), Classes: map[string]bool{"any": true}})
				}
			}
			window, w := waiting[:min(len(waiting), len(idle)+64)], Warmth{}
			if short {
				w.Takes = takes
				w.Late = passed.Late(window, takes, bound, start.Add(now))
			}
			picked := Pick(window, idle, w)
			pairs, over := picked.Pairs, picked.Passed
			passed.Note(over, start.Add(now))
			for _, key := range over {
				been := start.Add(now).Sub(passed[key])
				require.Less(t, been, min(bound, takes[key]))
				longest = max(longest, been)
			}
			for _, p := range pairs {
				var n int
				_, err := fmt.Sscan(p.Instance, &n)
				require.NoError(t, err)
				free[n] = now + takes[p.Job.Key]
				sum += now - arrives[p.Job.Key]
				waiting = slices.DeleteFunc(waiting, func(j job.Job) bool { return j.Key == p.Job.Key })
			}
			next := time.Duration(1<<62 - 1)
			for _, f := range free {
				if f > now && len(waiting) > 0 {
					next = min(next, f)
				}
			}
			if len(coming) > 0 {
				next = min(next, arrives[coming[0].Key])
			}
			now = next
		}
		return sum / count, longest
	}
	with, longest := simulate(true)
	without, none := simulate(false)
	require.Zero(t, none)
	require.Positive(t, longest)
	require.Less(t, with, without*6/10)
	t.Logf("mean wait %s instead of %s, overtaken for at most %s", with, without, longest)
}

// A job of these tests is "tenant/caller seconds", with "!" for a higher priority and
// "^" for one that was posted to the front, or "~" for a bulk one.
func shortJobs(text string) (jobs []job.Job, each []time.Duration) {
	for n, one := range strings.Split(text, ", ") {
		j := job.Job{Key: fmt.Sprint(n), Class: "any"}
		var seconds float64
		who, rest, _ := strings.Cut(one, " ")
		j.Tenant, j.Caller, _ = strings.Cut(who, "/")
		if strings.HasSuffix(rest, "!") {
			j.Priority = 1
		}
		if strings.HasSuffix(rest, "^") {
			j.Rank = job.RankPrefix(0, -1)
		}
		if strings.HasSuffix(rest, "~") {
			j.Rank = job.Bulk.Mark()
		}
		_, err := fmt.Sscan(strings.TrimRight(rest, "!^~"), &seconds)
		if err != nil {
			panic(err)
		}
		jobs, each = append(jobs, j), append(each, time.Duration(seconds*float64(time.Second)))
	}
	return jobs, each
}

// modelsOf are the models that graphs of a class load.
var modelsOf = map[string][]string{"sd": {"sd.safetensors"}, "flux": {"clip.safetensors", "flux.safetensors"}, "plain": nil}

// ofAll are the classes of an instance that can run everything.
var ofAll = map[string]bool{"sd": true, "flux": true, "plain": true}

// prompts reads jobs as "key class caller": "!" gives one a higher priority, and "^" puts it to the front. A
// caller is of the tenant t, or of another as in "u/x".
func prompts(text string) (jobs []job.Job) {
	for one := range strings.SplitSeq(text, ", ") {
		words := strings.Fields(strings.TrimRight(one, "!^"))
		j := job.Job{Key: words[0], Class: words[1], Requester: job.Requester{Tenant: "t", Caller: words[2], Client: words[2]}}
		if tenant, _, others := strings.Cut(words[2], "/"); others {
			j.Tenant = tenant
		}
		if strings.HasSuffix(one, "!") {
			j.Priority = 1
		}
		if strings.HasSuffix(one, "^") {
			j.Rank = job.RankPrefix(0, -3)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// idles reads instances as "name/what it has loaded/its last client"; those with one word have loaded what
// their name says.
func idles(text string) (list []Idle) {
	for one := range strings.FieldsSeq(text) {
		words := append(strings.Split(one, "/"), "", "")
		i := Idle{Name: words[0], Classes: ofAll, Loaded: modelsOf[cmp.Or(words[1], words[0])], LastClient: words[2]}
		if words[1] == "clip" {
			i.Loaded = modelsOf["flux"][:1]
		}
		list = append(list, i)
	}
	return list
}

// pairsOf are what was given out as "job:instance".
func pairsOf(t *testing.T, picked Picked) string {
	var pairs []string
	for _, p := range picked.Pairs {
		pairs = append(pairs, p.Job.Key+":"+p.Instance)
		require.NotEmpty(t, p.Why)
	}
	return strings.Join(pairs, " ")
}

func TestPickWarm(t *testing.T) {
	type row struct {
		waiting, idle string
		never         bool
		due           map[string]bool
		want, passed  string
	}
	each(t, map[string]row{
		"each where its models are":                        {waiting: "a flux x, b sd y", idle: "sd flux", want: "a:flux b:sd"},
		"loaded models count more than the client":         {waiting: "a flux x", idle: "one/sd/x flux", want: "a:flux"},
		"the client decides among those with the models":   {waiting: "a sd x", idle: "sd last/sd/x", want: "a:last"},
		"a part of the models is better than none":         {waiting: "a flux x", idle: "sd part/clip", want: "a:part"},
		"an empty one is used before models are dropped":   {waiting: "a flux x", idle: "sd cold", want: "a:cold"},
		"those are dropped that another instance has, too": {waiting: "a plain x", idle: "flux sd sd2/sd", want: "a:sd"},
		"another caller's job overtakes":                   {waiting: "a flux x, b sd y", idle: "sd", want: "b:sd", passed: "a"},
		"not if that is off":                               {waiting: "a flux x, b sd y", idle: "sd", never: true, want: "a:sd"},
		"not one that was overtaken for long enough":       {waiting: "a flux x, b sd y", idle: "sd", due: map[string]bool{"a": true}, want: "a:sd"},
		"not the caller's own":                             {waiting: "a flux x, b sd x", idle: "sd", want: "a:sd"},
		"not one of higher priority":                       {waiting: "a flux x!, b sd y", idle: "sd", want: "a:sd"},
		"not one that was posted to the front":             {waiting: "a flux x^, b sd y", idle: "sd", want: "a:sd"},
		"priorities of other tenants are theirs":           {waiting: "a flux u/x!, b sd y", idle: "sd", want: "b:sd", passed: "a"},
		"not one without models":                           {waiting: "a plain x, b sd y", idle: "sd", want: "a:sd"},
		"none in between":                                  {waiting: "a flux x, b flux y, c sd y", idle: "sd", want: "a:sd"},
		"who gets another instance was not overtaken":      {waiting: "a flux x, b sd y", idle: "sd sd2/sd", want: "b:sd a:sd2"},
	}, func(t *testing.T, c row) {
		picked := Pick(prompts(c.waiting), idles(c.idle), Warmth{Models: modelsOf, Overtaking: !c.never, Due: c.due})
		require.Equal(t, c.want, pairsOf(t, picked))
		require.Equal(t, c.passed, strings.Join(picked.Passed, " "))
	})
}

// A job waits for a busy instance with its models loaded only if that one will finish it sooner,
// and if nobody has to wait along with it who need not.
func TestPickHolds(t *testing.T) {
	busy := func(name string, free time.Duration) []Soon {
		return []Soon{{Idle: idles(name + "/flux")[0], Free: free}}
	}
	two := append(busy("one", 4*time.Second), busy("two", time.Second)...)
	type row struct {
		waiting      string
		soon         []Soon
		due, waited  map[string]bool
		unknown      bool
		pairs, holds string
	}
	a := map[string]bool{"a": true}
	each(t, map[string]row{
		"free sooner than loaded":       {waiting: "a flux x", soon: busy("one", 2*time.Second), holds: "a:one"},
		"loaded sooner than free":       {waiting: "a flux x", soon: busy("one", 6*time.Second), pairs: "a:idle"},
		"for the one that is sooner":    {waiting: "a flux x", soon: two, holds: "a:two"},
		"a slow instance is no gain":    {waiting: "a flux x", soon: busy("slow", 2*time.Second), pairs: "a:idle"},
		"nobody knows how long it runs": {waiting: "a flux x", soon: busy("one", 2*time.Second), unknown: true, pairs: "a:idle"},
		"it has been overtaken":         {waiting: "a flux x", soon: busy("one", 2*time.Second), due: a, pairs: "a:idle"},
		"it has waited":                 {waiting: "a flux x", soon: busy("one", 2*time.Second), waited: a, pairs: "a:idle"},
		"its models are loaded":         {waiting: "a sd x", soon: busy("one", 0), pairs: "a:idle"},
		"it loads none":                 {waiting: "a plain x", soon: busy("one", 0), pairs: "a:idle"},
		"one job waits for an instance": {waiting: "a flux x, b flux y", soon: busy("one", 2*time.Second), pairs: "b:idle", holds: "a:one"},
		// Then there is no idle one left.
		"another client's job goes on":          {waiting: "a flux x, b sd y", soon: busy("one", 2*time.Second), pairs: "b:idle"},
		"the client's next job would wait, too": {waiting: "a flux x, b plain x", soon: busy("one", 2*time.Second), pairs: "a:idle"},
		"a lower priority would wait, too":      {waiting: "a flux x!, b plain y", soon: busy("one", 2*time.Second), pairs: "a:idle"},
	}, func(t *testing.T, c row) {
		picked := Pick(prompts(c.waiting), idles("idle/sd"), Warmth{
			Models: modelsOf, Overtaking: true, Due: c.due, Waited: c.waited,
			Soon: func() []Soon { return c.soon },
			Ends: func(_ job.Job, instance string) (ran, load time.Duration) {
				switch {
				case c.unknown:
					return 0, 0
				case instance == "slow":
					return time.Minute, 5 * time.Second
				}
				return 4 * time.Second, 5 * time.Second
			},
		})
		require.Equal(t, c.pairs, pairsOf(t, picked))
		var holds []string
		for _, h := range picked.Held {
			require.Equal(t, 5*time.Second, h.For)
			holds = append(holds, h.Job.Key+":"+h.Instance)
		}
		require.Equal(t, c.holds, strings.Join(holds, " "))
	})
}

// A switch counts as saved if a look at what is loaded has changed who goes where.
func TestPickSavesSwitches(t *testing.T) {
	of := func(key, class, client string) job.Job {
		return job.Job{Key: key, Class: class, Requester: job.Requester{Caller: client, Client: client}}
	}
	flux, other := of("f", "flux", "ann"), of("o", "other", "bob")
	both := map[string]bool{"flux": true, "other": true, "none": true}
	has := func(name string, loaded ...string) Idle { return Idle{Name: name, Loaded: loaded, Classes: both} }
	last := func(i Idle, client string) Idle { i.LastClient = client; return i }
	type row struct {
		waiting []job.Job
		idle    []Idle
		want    []bool
	}
	each(t, map[string]row{
		"the only one, which has it":         {[]job.Job{flux}, []Idle{has("a", "flux")}, []bool{false}},
		"the only one, which has it not":     {[]job.Job{flux}, []Idle{has("a", "other")}, []bool{false}},
		"the second, which has it":           {[]job.Job{flux}, []Idle{has("a", "other"), has("b", "flux")}, []bool{true}},
		"the first, which would be taken":    {[]job.Job{flux}, []Idle{has("a", "flux"), has("b", "other")}, []bool{false}},
		"the client's own has it":            {[]job.Job{flux}, []Idle{has("a", "other"), last(has("b", "flux"), "ann")}, []bool{false}},
		"the client's own has it not":        {[]job.Job{flux}, []Idle{last(has("a", "other"), "ann"), has("b", "flux")}, []bool{true}},
		"another job goes first":             {[]job.Job{other, flux}, []Idle{has("a", "flux")}, []bool{true}},
		"no models":                          {[]job.Job{of("n", "none", "ann")}, []Idle{has("a"), has("b", "flux")}, []bool{false}},
		"each would have loaded the other's": {[]job.Job{other, flux}, []Idle{has("a", "flux"), has("b", "other")}, []bool{true, false}},
	}, func(t *testing.T, c row) {
		picked := Pick(c.waiting, c.idle, Warmth{Overtaking: true, Models: map[string][]string{"flux": {"flux"}, "other": {"other"}}})
		var saves []bool
		for _, pair := range picked.Pairs {
			saves = append(saves, pair.Saves)
		}
		require.Equal(t, c.want, saves)
	})
}
