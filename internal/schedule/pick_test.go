package schedule

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

func TestPick(t *testing.T) {
	t.Parallel()
	set := func(names ...string) map[string]bool {
		out := map[string]bool{}
		for _, n := range names {
			out[n] = true
		}
		return out
	}
	a := job.Job{Key: "a", Class: "plain", Requester: job.Requester{Client: "ann"}}
	b := job.Job{Key: "b", Class: "plain", Requester: job.Requester{Client: "bob"}}
	v := job.Job{Key: "v", Class: "video", Requester: job.Requester{Client: "vic"}}
	ada := job.Job{Key: "ada", Class: "plain", Requester: job.Requester{Tenant: "ada"}}
	cases := map[string]struct {
		waiting []job.Job
		idle    []Idle
		want    map[string]string
	}{
		"nothing waits": {idle: []Idle{{Name: "one", Classes: set("plain")}}},
		"nobody idle":   {waiting: []job.Job{a}},
		"first come, first served": {
			waiting: []job.Job{a, b}, idle: []Idle{{Name: "one", Classes: set("plain")}},
			want: map[string]string{"a": "one"},
		},
		"a job that nobody can run holds up nobody": {
			waiting: []job.Job{v, a}, idle: []Idle{{Name: "one", Classes: set("plain")}},
			want: map[string]string{"a": "one"},
		},
		"the instance that ran this client last": {
			waiting: []job.Job{b},
			idle: []Idle{
				{Name: "one", Classes: set("plain"), LastClient: "ann"},
				{Name: "two", Classes: set("plain", "video"), LastClient: "bob"},
			},
			want: map[string]string{"b": "two"},
		},
		"never waits for the favourite": {
			waiting: []job.Job{a, a}, idle: []Idle{
				{Name: "one", Classes: set("plain"), LastClient: "ann"},
				{Name: "two", Classes: set("plain")},
			},
			want: map[string]string{"a": "two"}, // the map keeps the second of the two
		},
		"an instance of others": {
			waiting: []job.Job{a, ada}, idle: []Idle{{Name: "one", Classes: set("plain"), Tenants: []string{"ada", "ann"}}},
			want: map[string]string{"ada": "one"},
		},
		"one's own instance first": {
			waiting: []job.Job{ada, a}, idle: []Idle{
				{Name: "all", Classes: set("plain")},
				{Name: "own", Classes: set("plain", "video"), Tenants: []string{"ada"}},
			},
			want: map[string]string{"ada": "own", "a": "all"},
		},
		"the able machine is kept for those who need it": {
			waiting: []job.Job{a, v},
			idle: []Idle{
				{Name: "able", Classes: set("plain", "video")},
				{Name: "plain", Classes: set("plain")},
			},
			want: map[string]string{"a": "plain", "v": "able"},
		},
		"not again where it was refused": {
			waiting: []job.Job{a},
			idle:    []Idle{{Name: "one", Classes: set("plain"), Refused: set("a")}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[string]string{}
			picked := Pick(c.waiting, c.idle, Warmth{})
			pairs, passed := picked.Pairs, picked.Passed
			require.Empty(t, passed)
			for _, p := range pairs {
				got[p.Job.Key] = p.Instance
				require.NotEmpty(t, p.Why)
			}
			if c.want == nil {
				c.want = map[string]string{}
			}
			require.Equal(t, c.want, got)
		})
	}
}

// each runs a test for each of the cases.
func each[C any](t *testing.T, cases map[string]C, test func(*testing.T, C)) {
	t.Helper()
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
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
