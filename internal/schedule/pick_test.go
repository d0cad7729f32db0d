package schedule

import (
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
