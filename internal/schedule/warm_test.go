package schedule

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

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
