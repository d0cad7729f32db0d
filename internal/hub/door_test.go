package hub_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/submit"
)

// patient makes POST /prompt wait for an instance without a limit, so that a slow
// machine cannot change the answer.
func patient(b *bench) { b.settings.AskPatience = time.Minute }

// checked is a graph with a custom class that has its own validate function. The
// function refuses negative values and raises for crash. See nodes_trace.go in
// package sim: the recorded servers have the same class.
func checked(value int, crash bool) string {
	return fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": 1}},
		"2": {"class_type": "ValidateNode", "inputs": {"image": ["1", 0], "value": %d, "crash": %t}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "ComfyUI"}}}`, value, crash)
}

// bounded is a graph with a custom class whose bounds and options ComfyUI's own rules check.
func bounded(seconds float64, format, image string) string {
	return fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": 1}},
		"2": {"class_type": "SlowNode", "inputs": {"image": [%q, 0], "seconds": %g, "steps": 1, "preview": false, "preview_format": %q}},
		"4": {"class_type": "SolidMask", "inputs": {"value": 1.0, "width": 64, "height": 32}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "ComfyUI"}}}`, image, seconds, format)
}

// If only an instance can refuse a prompt, POST /prompt refuses it in the exact
// words of that instance, and no trace is left.
func TestInstanceRefusesAtTheDoor(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 3} {
		runInBubble(t, fmt.Sprint(count), func(t *testing.T) {
			b := newBench(t, count, patient)
			socket := b.dial("ann")
			for n, graph := range []string{
				checked(-1, false), checked(1, true), // its own validate function refuses, and raises
				bounded(-1, "PNG", "1"), bounded(601, "PNG", "1"), bounded(0, "GIF", "1"), bounded(0, "PNG", "4"),
			} {
				body := fmt.Sprintf(`{"prompt": %s, "client_id": "ann", "prompt_id": "0b7c5c2e-6f0e-4b0e-9a52-0d8a3b2f9a0%d"}`, graph, n)
				resp := must(http.Post(b.instances[0].url()+"/prompt", "application/json", strings.NewReader(body)))(t)
				want := answered(read(t, resp))(t, http.StatusBadRequest, graph)
				require.JSONEq(t, string(want), string(answered(b.post("/prompt", body))(t, http.StatusBadRequest, graph)))
				for _, path := range []string{"/queue", "/history", "/api/jobs"} {
					require.NotContains(t, string(b.gets(path)), "0b7c5c2e", path)
				}
				require.JSONEq(t, `{"exec_info": {"queue_remaining": 0}}`, string(b.gets("/prompt")))
				// The next prompt gets the next number, and the socket hears nothing of the refused one.
				accepted := decoded[struct {
					ID     string `json:"prompt_id"`
					Number int
				}](t, b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "ann"}`, checked(n, false))))
				require.Equal(t, 2*n+1, accepted.Number)
				socket.until(accepted.ID)
				require.Equal(t, "success", b.finished(accepted.ID).Status.Text)
			}
		})
	}
}

// A prompt that an instance runs only in part is accepted, with the reasons.
func TestInstanceTakesAPart(t *testing.T) {
	inBench(t, benchOf(1, patient), func(t *testing.T, b *bench) {
		graph := strings.TrimSuffix(checked(-1, false), "}") +
			`, "9": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}}`
		answer := b.posts("/prompt", `{"prompt": `+graph+`}`)
		accepted := decoded[struct {
			ID         string `json:"prompt_id"`
			NodeErrors map[string]struct {
				Dependents []string `json:"dependent_outputs"`
			} `json:"node_errors"`
		}](t, answer)
		require.Equal(t, []string{"3"}, accepted.NodeErrors["2"].Dependents)
		require.Contains(t, b.finished(accepted.ID).Outputs, "9")
	})
}

// An idle instance speaks for a busy one with the same description, so its refusal is the answer.
// This does not hold for values that may depend on a machine's files.
func TestIdleInstanceSpeaksForBusyOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		other, graph string
		want         int
	}{
		"alike":           {"0.33.0", checked(-1, false), http.StatusBadRequest},
		"a bound":         {"0.33.0", bounded(-1, "PNG", "1"), http.StatusBadRequest},
		"another version": {"0.32.0", checked(-1, false), http.StatusOK},
	} {
		runInBubble(t, name, func(t *testing.T) {
			b := newBench(t, 0, patient, serving(sim.Config{Version: "0.33.0"}, sim.Config{Version: c.other}))
			busy := b.begins(endless(7), "bob")
			status, answer := b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "ann"}`, c.graph))
			require.Equal(t, c.want, status, string(answer))
			b.post("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, busy))
		})
	}
}

// statuses posts prompts at the same time, and counts the answers by status.
func (b *bench) statuses(bodies ...string) map[int]int {
	answers, counts := make(chan int), map[int]int{}
	for _, body := range bodies {
		go func() {
			resp, err := http.Post(b.web.URL+"/prompt", "application/json", strings.NewReader(body))
			if err != nil {
				answers <- 0
				return
			}
			resp.Body.Close()
			answers <- resp.StatusCode
		}()
	}
	for range bodies {
		counts[<-answers]++
	}
	return counts
}

// The hub does not wait for an instance that other jobs have taken.
func TestManyAtTheDoor(t *testing.T) {
	slow := sim.Config{TimeScale: 1} // no prompt ends before all of them are counted
	inBench(t, benchOf(0, patient, serving(slow, slow)), func(t *testing.T, b *bench) {
		var bodies []string
		for n := range 20 {
			bodies = append(bodies, `{"prompt": `+strings.Replace(bounded(600, "PNG", "1"), `"color": 1`, fmt.Sprintf(`"color": %d`, n), 1)+`}`)
		}
		require.Equal(t, map[int]int{http.StatusOK: 20}, b.statuses(bodies...)) // waiting for them would take minutes
		require.JSONEq(t, `{"exec_info": {"queue_remaining": 20}}`, string(b.gets("/prompt")))
	})
}

// A slow instance does not hold up the client: it gets its 200, and the job goes on.
func TestClientIsNotKeptAtTheDoor(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.AskPatience = time.Millisecond }), func(t *testing.T, b *bench) {
		b.instances[0].SetFault(sim.Faults{SlowHTTP: 10_000})
		id := b.submit(checked(-1, false), "ann")
		require.Equal(t, "error", b.finished(id).Status.Text)
	})
}

// The client may wait at one hub while another hub runs the job.
func TestDoorOfTwoHubs(t *testing.T) {
	inPair(t, 1, 0, func(t *testing.T, one, two *bench) {
		two.settings.Instances = one.settings.Instances
		for _, b := range []*bench{one, two} {
			patient(b)
			require.NoError(t, b.hub.Start(t.Context(), b.settings))
			b.connected(1)
		}
		for n := range 20 {
			b := []*bench{one, two}[n%2]
			// It hears from the other hub that the last run has ended.
			eventually(t, func() bool { return b.hub.Dispatch.Openings.HasIdle(catalog.Requirements{}, job.DefaultTenant) }, time.Minute, time.Millisecond)
			answer := answered(b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "ann"}`, checked(-1-n, false))))(t, http.StatusBadRequest)
			require.Contains(t, string(answer), "value must not be negative")
			id := b.submit(checked(1+n, false), "ann")
			require.Equal(t, "success", b.finished(id).Status.Text)
		}
	})
}

// The same request sent several times at the same time gets answers, and if one says 200 the job ends.
func TestSamePromptTwiceAtTheDoor(t *testing.T) {
	inBench(t, benchOf(1, patient), func(t *testing.T, b *bench) {
		const id = "0b7c5c2e-6f0e-4b0e-9a52-0d8a3b2f9a01"
		body := fmt.Sprintf(`{"prompt": %s, "client_id": "ann", "prompt_id": %q}`, checked(-1, false), id)
		counts := b.statuses(slices.Repeat([]string{body}, 8)...)
		require.Equal(t, 8, counts[http.StatusOK]+counts[http.StatusBadRequest], counts)
		if counts[http.StatusOK] > 0 {
			require.Equal(t, "error", b.finished(id).Status.Text)
		}
	})
}

// Once an instance has refused a prompt by ComfyUI's own rules, the hub refuses it from then on,
// even while no instance is idle. This does not apply to what a class checks itself.
func TestLessons(t *testing.T) {
	inBench(t, benchOf(2, patient), func(t *testing.T, b *bench) {
		good := map[string]string{"bounds": bounded(-1, "PNG", "1"), "options": bounded(0, "GIF", "1"), "link": bounded(0, "PNG", "4")}
		said := map[string][]byte{}
		for name, graph := range good {
			said[name] = answered(b.post("/prompt", `{"prompt": `+graph+`}`))(t, http.StatusBadRequest)
		}
		require.Equal(t, http.StatusBadRequest, statusOf(b.post("/prompt", `{"prompt": `+checked(-1, false)+`}`)))
		for n := range 2 {
			b.submit(endless(n), "bob")
		}
		eventually(t, func() bool { return started(b) == 2 }, time.Minute, 5*time.Millisecond)
		for name, graph := range good {
			require.JSONEq(t, string(said[name]), string(answered(b.post("/prompt", `{"prompt": `+graph+`}`))(t, http.StatusBadRequest, name)), name)
		}
		// The hub applies other checks to the same input of the same class. Checks of
		// other inputs and of links may be the class's own.
		require.Equal(t, http.StatusBadRequest, statusOf(b.post("/prompt", `{"prompt": `+bounded(601, "PNG", "1")+`}`)))
		b.submit(strings.Replace(bounded(0, "PNG", "1"), `"steps": 1,`, `"steps": 0,`, 1), "ann")
		b.submit(checked(-1, false), "ann")
		// Another instance, of which nothing is known, may take the prompt.
		b.settings.AskPatience = time.Millisecond
		b.settings.Instances = append(b.settings.Instances, newInstance(t, sim.Config{Faults: sim.Faults{SlowHTTP: 10_000}}).url())
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		b.connected(3)
		b.posts("/prompt", `{"prompt": `+good["bounds"]+`}`)
	})
}

// submissionOf is what a dialect makes of a graph.
func submissionOf(t *testing.T, graph string) submit.Submission {
	t.Helper()
	request := must(catalog.ParseRequest([]byte(`{"prompt": ` + graph + `}`)))(t)
	return submit.Submission{Requester: job.Requester{Tenant: job.DefaultTenant, Caller: "from:test"}, Graph: request.Graph, Extra: request.Extra}
}

// loggedDoor records when a door is closed.
type loggedDoor struct {
	submit.Door
	log *[]string
}

func (d loggedDoor) Close() {
	*d.log = append(*d.log, "closed")
	d.Door.Close()
}

// Messages of a run may follow once the door of its job is closed. A client that
// is told of an error must have that answer by then, just like a client that is
// told an id: a job may be queued even though its client is told of an error.
func TestDoorStaysOpenUntilTheAnswer(t *testing.T) {
	inBench(t, benchOf(1, patient), func(t *testing.T, b *bench) {
		var log []string
		submitter := *b.hub.Submitter
		submitter.Door = func(key string) submit.Door { return loggedDoor{b.hub.Dispatch.Doors.Open(key), &log} }
		for _, test := range []struct {
			graph   string
			refused bool
		}{{checked(-1, false), true}, {checked(1, false), false}} { // refused first, so that the instance is idle
			log = nil
			submitter.Submit(t.Context(), submissionOf(t, test.graph), func(_ submit.Accepted, err error) {
				log = append(log, "answered")
				var refusal *catalog.Answer
				require.Equal(t, test.refused, errors.As(err, &refusal), "%v", err)
			})
			require.Equal(t, []string{"answered", "closed"}, log)
		}
	})
}
