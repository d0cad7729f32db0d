package dispatch

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// of gives a submission to a tenant.
func of(tenant string) func(*queue.Submission) {
	return func(s *queue.Submission) { s.Tenant, s.Caller = tenant, tenant }
}

// A reserved instance takes only its tenants' jobs, however many others are waiting before them,
// and all others take anybody's.
func TestReservedInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		needs := catalog.Requirements{Classes: []string{"EmptyImage"}}
		own, all := newScripted(t), newScripted(t)
		b := newDispatching(t, 0)
		b.add(own)
		b.connects(1)
		b.set(func(s *Settings) { s.Reserved = schedule.Reservations{{Instances: own.name, Tenants: []string{"ada"}}} })
		var others []string
		for range 30 {
			others = append(others, b.submit(picture, of("bob")))
		}
		for range 2 {
			require.Equal(t, own.name, b.reaches(b.submit(picture, of("ada")), job.Done).Run.Instance)
		}
		b.staysUnstuck()
		for _, key := range others {
			require.Zero(t, b.Job(key).Fence, "it was not even claimed")
		}
		require.Equal(t, "no present instance can run it: "+own.name+" is reserved for other tenants", b.Waiting.Explain(needs, "bob"))
		require.Equal(t, "waiting for an instance to become idle", b.Waiting.Explain(needs, "ada"))
		require.False(t, b.Openings.HasIdle(needs, "bob"))
		require.True(t, b.Openings.HasIdle(needs, "ada"))
		candidates := b.Forecasts.From(t.Context(), b.Job(others[0])).Candidates(b.Job(others[0]), needs)
		require.Len(t, candidates, 1)
		require.False(t, candidates[0].Can)
		require.Equal(t, "it is reserved for other tenants", candidates[0].Why)
		require.Equal(t, []string{"ada"}, candidates[0].Reserved)
		require.Negative(t, b.Forecasts.From(t.Context(), b.Job(others[0])).ETA(b.Job(others[0]), 0))

		b.add(all)
		for _, key := range others {
			require.Equal(t, all.name, b.reaches(key, job.Done).Run.Instance)
		}
		b.set(func(s *Settings) { s.Reserved = nil })
		b.reaches(b.submit(picture, of("bob")), job.Done)
	})
}

// A job that finds only reserved instances ends like one that no instance can run; those of the
// other tenants keep waiting.
func TestReservedForOthersExpires(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		own := newScripted(t)
		b := newDispatching(t, 0)
		name := must(b.fleet.AddStatic(own.web.URL))
		b.set(func(s *Settings) { s.Reserved = schedule.Reservations{{Instances: name, Tenants: []string{"ada"}}} })
		// It takes no job from the start: a look already under way would not notice a drain.
		b.fleet.Observe(fleet.InstanceReport{Name: name, URL: own.web.URL, Direct: true, Kind: fleet.KindComfyUI, Up: true, Boot: 1, Draining: true})
		b.connects(1)
		ada, bob := b.submit(picture, of("ada")), b.submit(picture, of("bob"))
		b.set(func(s *Settings) { s.UnrunnableTimeout = time.Millisecond })
		eventually(t, func() bool {
			b.signal.Wake()
			return b.Job(bob).State == job.Failed
		}, deadline, 10*time.Millisecond)
		require.Contains(t, b.Job(bob).Reason, "is reserved for other tenants")
		require.Equal(t, job.Queued, b.Job(ada).State)
	})
}

func TestBarred(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		b.set(func(s *Settings) {
			s.Reserved, s.SecretsTo = schedule.Reservations{{Instances: "own*", Tenants: []string{"ada"}}}, SecretsTo{"own2"}
		})
		video, plain := described("Video"), described()
		needs := func(nodes ...string) catalog.Requirements { return catalog.Requirements{Classes: nodes} }
		infos := map[string]*catalog.Info{"own1": video, "own2": video, "all": plain}
		require.Equal(t, BarredReserved, b.Access.Barred(infos, needs("Video"), "bob"))
		require.Equal(t, NotBarred, b.Access.Barred(infos, needs("Video"), "ada"))
		require.Equal(t, NotBarred, b.Access.Barred(infos, needs("Common"), "bob"))
		require.Equal(t, NotBarred, b.Access.Barred(infos, needs("Nowhere"), "bob"), "that is another error")
		require.Equal(t, NotBarred, b.Access.Barred(nil, needs("Video"), "bob"))
		secret := func(nodes ...string) catalog.Requirements {
			return catalog.Requirements{Classes: nodes, Secrets: true}
		}
		require.Equal(t, NotBarred, b.Access.Barred(infos, secret("Video"), "ada"))
		require.Equal(t, BarredReserved, b.Access.Barred(infos, secret("Video"), "bob"))
		require.Equal(t, BarredSecrets, b.Access.Barred(infos, secret("Common"), "bob"))
		b.set(func(s *Settings) { s.Reserved = nil })
		require.Equal(t, NotBarred, b.Access.Barred(infos, needs("Video"), "bob"))
		require.Equal(t, NotBarred, b.Access.Barred(infos, secret("Video"), "bob"))
		b.set(func(s *Settings) { s.SecretsTo = SecretsTo{"nobody"} })
		require.Equal(t, BarredSecrets, b.Access.Barred(infos, secret("Video"), "bob"))
		require.Equal(t, NotBarred, b.Access.Barred(infos, secret("Nowhere"), "bob"))
	})
}

// By default the operator's own machines get API keys, and machines admitted with a token get none.
// With secrets_to, only those it names get them, by names that nobody can choose freely.
func TestSecretsTo(t *testing.T) {
	t.Parallel()
	static := fleet.Instance{Name: "10.0.0.5:8188", URL: "http://10.0.0.5:8188", Kind: fleet.KindComfyUI}
	agent := fleet.Instance{Name: "gpu1-8188", Agent: "gpu1", URL: "https://10.0.0.6:7947/i/gpu1-8188", Kind: fleet.KindComfyUI}
	tunnel := fleet.Instance{Name: "gpu1", Agent: "attic", URL: "tunnel://attic/i/gpu1", Kind: fleet.KindComfyUI}
	worker := fleet.Instance{Name: "worker:attic/one", URL: "worker:attic/one", Kind: fleet.KindWorker}
	for name, tt := range map[string]struct {
		to   SecretsTo
		want [4]bool
	}{
		"default":                {nil, [4]bool{true, true, false, false}},
		"a static one":           {SecretsTo{"10.0.0.5:8188"}, [4]bool{true, false, false, false}},
		"an agent":               {SecretsTo{"gpu1"}, [4]bool{false, true, false, false}},
		"an agent's own wording": {SecretsTo{"gpu1-8188"}, [4]bool{false, false, false, false}},
		"agents":                 {SecretsTo{"gpu*"}, [4]bool{false, true, false, false}},
		"a tunnel":               {SecretsTo{"attic"}, [4]bool{false, false, true, false}},
		"a machine's workers":    {SecretsTo{"worker:attic/*"}, [4]bool{false, false, false, true}},
		"several":                {SecretsTo{"gpu1", "attic"}, [4]bool{false, true, true, false}},
		"everybody":              {SecretsTo{"*"}, [4]bool{true, true, true, true}},
	} {
		require.Equal(t, tt.want, [4]bool{tt.to.Has(static), tt.to.Has(agent), tt.to.Has(tunnel), tt.to.Has(worker)}, name)
	}
}

// needingKeys makes a submission one that needs its API key.
func needingKeys(s *queue.Submission) {
	needs, err := catalog.DecodeRequirements(s.Body.Requires)
	if err != nil {
		panic(err) // the bench has encoded them
	}
	needs.Secrets = true
	s.Class, s.Body.Requires = needs.Signature(), needs.Encode()
}

// A job that needs its API key waits for an instance that may have it, while others go past it to
// one that may not. A reload lets it go on.
func TestSecretJobsWaitForInstances(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		needs := catalog.Requirements{Classes: []string{"EmptyImage"}, Secrets: true}
		other, own := newScripted(t), newScripted(t)
		b := newDispatching(t, 0)
		b.add(other)
		b.connects(1)
		b.set(func(s *Settings) { s.SecretsTo = SecretsTo{"nobody"} })
		keyed := b.submit(picture, needingKeys)
		require.Equal(t, other.name, b.reaches(b.submit(picture), job.Done).Run.Instance)
		require.Zero(t, b.Job(keyed).Fence, "it was not even claimed")
		const lacks = "leave to have the API keys of prompts (secrets_to in the hub's Caddyfile)"
		require.Equal(t, "no present instance can run it: "+other.name+" lacks "+lacks, b.Waiting.Explain(needs, "default"))
		require.False(t, b.Openings.HasIdle(needs, "default"))
		candidates := b.Forecasts.From(t.Context(), b.Job(keyed)).Candidates(b.Job(keyed), needs)
		require.Len(t, candidates, 1)
		require.False(t, candidates[0].Can)
		require.Equal(t, []string{lacks}, candidates[0].Lacks)

		b.add(own)
		b.set(func(s *Settings) { s.SecretsTo = SecretsTo{own.name} })
		b.signal.Wake()
		require.Equal(t, own.name, b.reaches(keyed, job.Done).Run.Instance)
		b.set(func(s *Settings) { s.SecretsTo = SecretsTo{other.name} })
		require.Equal(t, other.name, b.reaches(b.submit(picture, needingKeys), job.Done).Run.Instance)
		b.set(func(s *Settings) { s.SecretsTo, s.UnrunnableTimeout = SecretsTo{"nobody"}, time.Millisecond })
		left := b.submit(picture, needingKeys)
		eventually(t, func() bool {
			b.signal.Wake()
			return b.Job(left).State == job.Failed
		}, deadline, 10*time.Millisecond)
		require.Contains(t, b.Job(left).Reason, "secrets_to")
	})
}

// otherHub is a roster of one instance that another hub has, and of one object_info.
type otherHub struct {
	info *catalog.Info
	hash string
	gone atomic.Bool
	kept chan string
}

const emptyImage = `{"EmptyImage": {"input": {"required": {"width": ["INT", {"default": 512}]}}, "output": ["IMAGE"], "output_node": false}}`

func newOtherHub(body string) *otherHub {
	info := must(catalog.Parse([]byte(body)))
	return &otherHub{info: info, hash: comfyui.HashObjectInfo([]byte(body)), kept: make(chan string, 100)}
}

func (o *otherHub) with(_ *dispatching, c *Config) { c.Roster = o }

// Keep implements Roster.
func (o *otherHub) Keep(_ string, _ comfyui.Version, hash string, _ []byte) { o.kept <- hash }

// Recall implements Roster.
func (o *otherHub) Recall(_ context.Context, hash string) *catalog.Info {
	if hash == o.hash {
		return o.info
	}
	return nil
}

// Recalled implements Roster.
func (o *otherHub) Recalled(_ string, _ comfyui.Version, hash string) { o.kept <- hash }

// Elsewhere implements Roster.
func (o *otherHub) Elsewhere() map[string]*catalog.Info {
	if o.gone.Load() {
		return nil
	}
	return map[string]*catalog.Info{"far": o.info}
}

// A hub that sees no instance does not fail jobs that another hub's instance could run.
func TestJobsWaitForInstancesOfOtherHubs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newOtherHub(emptyImage)
		b := newDispatching(t, 0, o.with, func(b *dispatching, _ *Config) { b.settings.UnrunnableTimeout = 50 * time.Millisecond })
		key := b.submit(picture)
		eventually(t, func() bool { return time.Since(time.UnixMilli(b.Job(key).CreatedAt)) > time.Second }, deadline, 50*time.Millisecond)
		b.Dispatcher.Close() // its loop would look too
		b.Dispatcher = New(b.config)
		for range 3 {
			b.Waiting.expire(t.Context())
			require.Equal(t, job.Queued, b.Job(key).State)
		}
		require.Equal(t, "waiting for an instance of another hub to become idle", b.Waiting.Explain(catalog.Requirements{Classes: []string{"EmptyImage"}}, "anybody"))
		require.Equal(t, "no instance is connected", b.Waiting.Explain(catalog.Requirements{Classes: []string{"Other"}}, "anybody"))
		o.gone.Store(true)
		b.Start()
		require.Contains(t, b.failure(key), "No instance could run this prompt")
	})
}

// A job that this hub's only instance refuses is left to another hub's instance, a limited number
// of times.
func TestRefusedJobsAreLeftToOtherHubs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newOtherHub(emptyImage)
		b := newDispatching(t, 1, o.with)
		b.instances[0].on("POST /prompt", refuse)
		key := b.submit(picture)
		require.Contains(t, b.lost(key), "the instance refused it")
		require.NotEqual(t, job.Failed, b.Job(key).State)
		b.record(key, "excuses", 8)
		require.Contains(t, b.failure(key), "Custom validation failed for node")
	})
}

// An instance whose agent says that it can still run what was stored gets jobs before it has
// answered itself.
func TestCatalogIsRecalled(t *testing.T) {
	s := newScripted(t)
	body, _, err := func() ([]byte, string, error) {
		client := must(comfyui.NewClient(s.web.URL, comfyui.Options{Dial: loopback.Dial}))
		return client.ObjectInfo(t.Context(), nil)
	}()
	require.NoError(t, err)
	o := newOtherHub(string(body))
	type row struct {
		reported string
		waits    bool
	}
	inBubbles(t, map[string]row{
		"it is the same": {o.hash, false},
		"it is another":  {"another", true},
		"nobody says so": {"", true},
	}, func(t *testing.T, tt row) {
		o := newOtherHub(string(body))
		b := newDispatching(t, 0, o.with)
		a := hire(b, newScripted(t))
		a.classes = tt.reported
		asked := make(chan struct{}, 1)
		a.i.on("GET /object_info", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			select {
			case asked <- struct{}{}:
			default:
			}
			if tt.waits {
				next.ServeHTTP(w, r)
				return
			}
			<-r.Context().Done()
		})
		key := b.submit(picture)
		a.report("")
		b.reaches(key, job.Done)
		require.Equal(t, o.hash, <-o.kept)
		require.Len(t, asked, map[bool]int{false: 0, true: 1}[tt.waits])
	})
}
