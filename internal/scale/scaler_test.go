package scale

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// Machines come when there is work, and go when there is none.
func TestScalerFollowsTheWork(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		c := newCloud(t)
		go c.run(t.Context())
		s, stop := c.scaling(redistest.Embedded(t), "one", classOf(c))
		defer stop()
		<-time.After(time.Minute)
		require.Zero(t, c.count())
		c.post(60, 30*time.Second)
		eventually(t, 20*time.Minute, "all is done", func() bool { return c.left() == 0 })
		require.Equal(t, 5, c.most)
		require.Equal(t, 60, c.done)
		eventually(t, 10*time.Minute, "all are gone", func() bool { return c.count() == 0 })
		status := must.Get(s.Status(t.Context()))(t)
		require.Len(t, status, 1)
		require.InDelta(t, float64(c.seconds)/3600, status[0].Spent, 0.05)
		require.InDelta(t, c.take.Seconds(), status[0].Start.Seconds(), 10)
		last := int64(0)
		for _, call := range c.calls {
			require.Greater(t, call.Sequence, last)
			last = call.Sequence
		}
	})
}

// A spent budget ends no job: the machine gets no other one, and goes when it is idle. The next day
// there is another budget.
func TestScalerKeepsToTheBudget(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		c := newCloud(t)
		class := classOf(c)
		class.Max, class.Budget = 1, 0.05 // three minutes
		<-time.After(23 * time.Hour)      // a day begins at midnight
		c.post(10, time.Minute)
		go c.run(t.Context())
		_, stop := c.scaling(redistest.Embedded(t), "one", class)
		defer stop()
		eventually(t, 10*time.Minute, "it is drained", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.machines) == 1 && c.machines["gpu-1"].stopped
		})
		eventually(t, 10*time.Minute, "it ends its job and goes", func() bool { return c.count() == 0 })
		require.Equal(t, 1, c.done)
		require.Positive(t, c.left(), "the budget is spent")
		eventually(t, 90*time.Minute, "tomorrow it goes on", func() bool { return c.count() == 1 })
	})
}

// A machine that is drained goes on when there is work again, in place of a new one.
func TestScalerTakesMachinesBack(t *testing.T) {
	t.Parallel()
	now := (24 * time.Hour).Milliseconds()
	rec := decode("")
	rec.Told, rec.Machines = 2, map[string]machine{"gpu-1": {Seen: now, Drained: now - 9}, "gpu-2": {Seen: now, Drained: now - 5}}
	view := View{
		Instances: []Instance{{Name: "gpu-1", Works: true, Stopped: true, Busy: true}, {Name: "gpu-2", Works: true, Stopped: true}},
		Waiting:   []time.Duration{time.Second},
	}
	c := &course{class: Class{Name: "gpu", Instances: []string{"gpu-*"}, Max: 2, IdleAfter: time.Minute}, now: now, rec: &rec, view: view, watch: newWatch(now, time.Minute)}
	c.plan()
	require.Equal(t, []string{"gpu-2"}, c.undrain)
	require.Empty(t, c.drain)
	require.Nil(t, rec.Change, "the number is the same")
	require.Zero(t, rec.Machines["gpu-2"].Drained)
	require.NotZero(t, rec.Machines["gpu-1"].Drained)
}

// Failures of the provider, and machines that never join, are tried again after pauses that grow.
func TestScalerMeetsFailures(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		c := newCloud(t)
		fails := 0
		c.call = func(_ context.Context, taken bool) error {
			if fails++; !taken && fails <= 4 {
				return errCloud
			}
			return nil
		}
		c.dud = func(n int) bool { return n <= 2 }
		class := classOf(c)
		class.Max = 1
		go c.run(t.Context())
		s, stop := c.scaling(redistest.Embedded(t), "one", class)
		defer stop()
		c.post(1, time.Minute)
		<-time.After(15 * time.Second)
		status := must.Get(s.Status(t.Context()))(t)
		require.Equal(t, errCloud.Error(), status[0].Error)
		eventually(t, time.Hour, "the job is done", func() bool { return c.done == 1 })
		require.Equal(t, 3, c.number)
		require.LessOrEqual(t, len(c.calls), 6, "two starts that failed, and one that did not")
	})
}

// The hub dies in calls of the provider, before they have an effect and after; another one or
// itself goes on. A change keeps its meaning, no machine that works is removed, there are never
// more than Max, and all jobs are done.
func TestScalerSurvivesDeaths(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				c := newCloud(t)
				db, class := redistest.Embedded(t), classOf(c)
				var mu sync.Mutex
				var stop func()
				dead := make(chan struct{}, 1)
				c.call = func(ctx context.Context, _ bool) error {
					mu.Lock()
					die := random.IntN(3) == 0
					mu.Unlock()
					if !die {
						return nil
					}
					dead <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				}
				c.dud = func(int) bool { mu.Lock(); defer mu.Unlock(); return random.IntN(6) == 0 }
				go c.run(t.Context())
				hub := 0
				begin := func() { _, stop = c.scaling(db, fmt.Sprint("hub", hub%2), class) }
				begin()
				posted := 0
				for end := time.Now().Add(4 * time.Hour); time.Now().Before(end) || c.left() > 0 || c.count() > 0; {
					require.Less(t, time.Since(end), 3*time.Hour, "%d left, %d machines", c.left(), c.count())
					mu.Lock()
					if random.IntN(200) == 0 && time.Now().Before(end) {
						n := 1 + random.IntN(20)
						posted += n
						c.post(n, time.Duration(5+random.IntN(90))*time.Second)
					}
					mu.Unlock()
					select {
					case <-dead:
						stop()
						mu.Lock()
						hub += random.IntN(2)
						mu.Unlock()
						begin()
					case <-time.After(time.Second):
					}
				}
				stop()
				require.Equal(t, posted, c.done)
				require.LessOrEqual(t, c.most, class.Max)
			})
		})
	}
}

// Machines of a class that is not configured any more are like any others.
func TestScalerLeavesAClass(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		c := newCloud(t)
		db := redistest.Embedded(t)
		class := classOf(c)
		class.Max = 1
		go c.run(t.Context())
		_, stop := c.scaling(db, "one", class)
		c.post(1, 10*time.Second)
		eventually(t, 10*time.Minute, "it is up", func() bool { return c.done == 1 })
		stuck := make(chan struct{})
		c.call = func(ctx context.Context, _ bool) error { close(stuck); <-ctx.Done(); return ctx.Err() }
		<-stuck // it is drained, and to be removed
		stop()
		c.call = nil
		class.Name = "other"
		class.Instances = []string{"other-*"}
		_, stop = c.scaling(db, "one", class)
		defer stop()
		eventually(t, time.Minute, "it is not drained any more", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return !c.machines["gpu-1"].stopped
		})
		records := must.Get(store{db, "one"}.read(t.Context()))(t)
		require.Empty(t, decode(records["gpu"]).Machines)
		require.NotZero(t, decode(records["gpu"]).Spent, "it may come back today")
		<-time.After(24 * time.Hour)
		records = must.Get(store{db, "one"}.read(t.Context()))(t)
		require.NotContains(t, records, "gpu")
	})
}

// A receiver gets the change, signed, and its status says whether it is done.
func TestWebhook(t *testing.T) {
	t.Parallel()
	const secret = "sixteen bytes or more"
	status, got := http.StatusAccepted, Change{}
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		hook, err := standardwebhooks.NewWebhookRaw([]byte(secret))
		if err != nil || hook.Verify(body, r.Header) != nil || json.Unmarshal(body, &got) != nil || r.Header.Get("webhook-id") != got.ID {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.WriteHeader(status)
	}))
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	hook := Webhook{URL: web.URL + "/machines?key=secret", Secret: secret, Egress: egress.Options{Roots: roots}}
	require.NoError(t, hook.Check())
	change := Change{ID: "abc", Sequence: 3, Class: "gpu", Wanted: 2, Start: 1, Remove: []string{"gpu-1"}, Keep: []string{"gpu-2"}, Reason: "so"}
	require.NoError(t, hook.Set(t.Context(), change))
	require.Equal(t, change, got)

	status = http.StatusFound
	require.ErrorContains(t, hook.Set(t.Context(), change), "the webhook answered with 302 Found")
	other := hook
	other.Secret = "another secret of a hub"
	require.ErrorContains(t, other.Set(t.Context(), change), "403 Forbidden")
	web.Close()
	err := hook.Set(t.Context(), change)
	require.ErrorContains(t, err, "the webhook failed")
	require.NotContains(t, err.Error(), "secret")

	for _, wrong := range []string{"http://example.com", "https://", "example.com/x", "https://ann:pw@example.com/", ":"} {
		require.Error(t, Webhook{URL: wrong}.Check(), wrong)
	}
}

// As a program, this test is one that starts machines.
func TestMachineProgram(t *testing.T) {
	t.Parallel()
	switch os.Getenv("SCALE_TEST") {
	case "":
		t.Skip("only as a program")
	case "well":
		var c Change
		require.NoError(t, json.NewDecoder(os.Stdin).Decode(&c))
		require.NoError(t, os.WriteFile(os.Getenv("SCALE_FILE"), []byte(c.ID+" "+strings.Join(c.Remove, ",")+os.Getenv("COMFYHUB_SECRET")), 0o600))
	case "fails":
		_, _ = os.Stderr.WriteString(strings.Repeat("noise ", 1000) + "\nno quota\n")
		os.Exit(3)
	case "hangs":
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		_, _ = l.Accept()
	}
}

// A program gets the change, and what it says when it fails is the error.
func TestExec(t *testing.T) {
	file := t.TempDir() + "/told"
	t.Setenv("COMFYHUB_SECRET", "none of its business")
	t.Setenv("SCALE_FILE", file)
	e := Exec{Command: []string{os.Args[0], "-test.run=^TestMachineProgram$"}}

	t.Setenv("SCALE_TEST", "well")
	require.NoError(t, e.Set(t.Context(), Change{ID: "abc", Class: "gpu", Wanted: 1, Remove: []string{"gpu-1"}}))
	told := must.Get(os.ReadFile(file))(t)
	require.Equal(t, "abc gpu-1", string(told))

	t.Setenv("SCALE_TEST", "fails")
	err := e.Set(t.Context(), Change{})
	require.ErrorContains(t, err, "exit status 3")
	require.ErrorContains(t, err, "no quota")
	require.Less(t, len(err.Error()), 1000)
	require.NotContains(t, err.Error(), "\n")

	t.Setenv("SCALE_TEST", "hangs")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, e.Set(ctx, Change{}), "took too long")

	leaves := Exec{Command: []string{"sh", "-c", "sleep 5 &"}} // with the standard error open
	require.NoError(t, leaves.Set(t.Context(), Change{}))

	require.Error(t, Exec{Command: []string{"./there-is-no-such-program"}}.Set(t.Context(), Change{}))
}
