package hub_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

func TestMain(m *testing.M) { loopback.Main(m) }

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel() // here, where the linter sees it
	loopback.Test(t, test)
}

func runInBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

// plan is a bench that has yet to be started.
type plan struct {
	count  int
	change []func(*bench)
}

func benchOf(count int, change ...func(*bench)) plan { return plan{count, change} }

// inBench starts a bench in a bubble.
func inBench(t *testing.T, p plan, test func(t *testing.T, b *bench)) {
	t.Helper()
	inBubble(t, func(t *testing.T) { test(t, newBench(t, p.count, p.change...)) })
}

// inPair is inBench with a pair of hubs.
func inPair(t *testing.T, atOne, atTwo int, test func(t *testing.T, one, two *bench)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		one, two := newPair(t, atOne, atTwo)
		test(t, one, two)
	})
}

func eventually(t testing.TB, so func() bool, within, every time.Duration, message ...any) {
	t.Helper()
	loopback.Eventually(t, so, within, every, message...)
}

// gets is get for requests that must succeed.
func (b *bench) gets(path string) []byte {
	b.t.Helper()
	status, body := b.get(path)
	require.Equal(b.t, http.StatusOK, status, "%s: %s", path, body)
	return body
}

// posts is post for requests that must succeed.
func (b *bench) posts(path, body string) []byte {
	b.t.Helper()
	status, answer := b.post(path, body)
	require.Equal(b.t, http.StatusOK, status, "%s: %s", path, answer)
	return answer
}

// statusOf is the status of an answer.
func statusOf[T any](status int, _ T) int { return status }

// answered requires a status of an answer and returns its body: answered(b.get(path))(t, 404).
func answered[B any](status int, body B) func(t testing.TB, want int, about ...any) B {
	return func(t testing.TB, want int, about ...any) B {
		t.Helper()
		require.Equal(t, want, status, "%v: %s", about, body)
		return body
	}
}

// must returns the result of a call that must not fail: must(call())(t).
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// decoded is a JSON text as a value.
func decoded[T any, B ~string | ~[]byte](t testing.TB, text B) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v), string(text))
	return v
}

// nodeError is what an answer to POST /prompt says of a node.
type nodeError struct {
	Errors []struct{ Type, Details string }
}

// nodeErrors are those of a prompt that was refused, by node.
func nodeErrors[B ~string | ~[]byte](t testing.TB, answer B) map[string]nodeError {
	t.Helper()
	return decoded[struct {
		Errors map[string]nodeError `json:"node_errors"`
	}](t, answer).Errors
}

// idOf returns the prompt_id of an answer to POST /prompt.
func idOf[B ~string | ~[]byte](t testing.TB, answer B) string {
	t.Helper()
	return decoded[struct {
		ID string `json:"prompt_id"`
	}](t, answer).ID
}

// serving adds simulated instances to a bench.
func serving(configs ...sim.Config) func(*bench) {
	return func(b *bench) {
		for _, c := range configs {
			b.instances = append(b.instances, newInstance(b.t, c))
		}
	}
}

// begins submits a graph, and waits until an instance has begun to run it.
func (b *bench) begins(graph, client string) (id string) {
	b.t.Helper()
	before := started(b)
	id = b.submit(graph, client)
	eventually(b.t, func() bool { return started(b) > before }, time.Minute, time.Millisecond)
	return id
}

func started(b *bench) int {
	n := 0
	for _, i := range b.instances {
		n += i.Started()
	}
	return n
}

// headers builds a request's headers from names and values, leaving out empty ones.
func headers(pairs ...string) map[string]string {
	header := map[string]string{}
	for n := 0; n < len(pairs); n += 2 {
		if pairs[n+1] != "" {
			header[pairs[n]] = pairs[n+1]
		}
	}
	return header
}
