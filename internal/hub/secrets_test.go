package hub

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// paidServer is an instance with a class of paid nodes. It notes what it is given.
type paidServer struct {
	url  string
	mu   sync.Mutex
	seen []string // bodies of POST /prompt
}

// newPaidServer starts one that says whether the class Paid needs an API key.
func newPaidServer(t *testing.T, paid bool) *paidServer {
	t.Helper()
	v, err := pyjson.Parse(fmt.Appendf(nil, `{"input": {"required": {"image": ["IMAGE"]}}, "input_order": {"required": ["image"]},
		"output": ["IMAGE"], "output_is_list": [false], "output_name": ["IMAGE"], "name": "Paid", "display_name": "Paid", "description": "",
		"python_module": "comfy_api_nodes.paid", "category": "api node", "output_node": false, "api_node": %t}`, paid))
	require.NoError(t, err)
	class, _ := v.(*pyjson.Object)
	k := &paidServer{}
	k.url = simtest.Front(t, newInstance(t, sim.Config{CustomClasses: map[string]*pyjson.Object{"Paid": class}}).url(),
		func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
			if r.Method == http.MethodPost && r.URL.Path == "/prompt" {
				body, _ := io.ReadAll(r.Body)
				k.mu.Lock()
				k.seen = append(k.seen, string(body))
				k.mu.Unlock()
				r.Body = io.NopCloser(strings.NewReader(string(body)))
			}
			rest.ServeHTTP(w, r)
		}).URL
	return k
}

// given reports how many prompts with a text the instance has had.
func (k *paidServer) given(text string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, body := range k.seen {
		if strings.Contains(body, text) {
			n++
		}
	}
	return n
}

// paidPicture is a graph with a node that needs an API key.
func paidPicture(n int) string {
	return fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": %d}},
		"2": {"class_type": "Paid", "inputs": {"image": ["1", 0]}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "a"}}}`, n)
}

// A prompt that needs its API key goes only where secrets_to lets the key go, whatever other
// instances say of its nodes; one that does not goes anywhere, without the key where it may not
// be. Where nobody may have it the prompt is refused, and the reason says what to do.
func TestSecretsGoWhereTheyMay(t *testing.T) {
	t.Parallel()
	const secret = `{"api_key_comfy_org": "very secret"}`
	own, other := newPaidServer(t, true), newPaidServer(t, false) // the other one turns the need off, if it is believed
	var names [2]string
	b := newBench(t, 0, func(b *bench) {
		b.settings.Instances = []string{own.url, other.url}
		for n, url := range b.settings.Instances {
			names[n], _ = InstanceName(url)
		}
		b.settings.SecretsTo = []string{names[0]}
	})
	b.connected(2)
	eventually(t, b.hub.classes.hasLooked, time.Minute, 5*time.Millisecond)
	for n := range 6 {
		b.finished(b.submitWith(paidPicture(n), secret))
	}
	require.Equal(t, 6, own.given("very secret"))
	require.Zero(t, other.given(`"Paid"`), "although it is idle")

	require.NoError(t, b.hub.Operator().Drain(t.Context(), names[0], 0))
	b.finished(b.submitWith(paidPicture(10), `{"api_key_comfy_org": null}`))
	b.finished(b.submitWith(picture(11), secret))
	require.Equal(t, 2, other.given(`"EmptyImage"`), "these do not need one")
	waits := b.submitWith(paidPicture(12), secret)
	status, text := b.post("/hub/explain", fmt.Sprintf(`{"prompt_id": %q}`, waits))
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(text), names[1]+`", "state": "idle", "can_run": false, "why": "it lacks leave to have the API keys of prompts (secrets_to in the hub's Caddyfile)`)
	require.NoError(t, b.hub.Operator().Resume(t.Context(), StopInstance(names[0])))
	b.finished(waits)
	require.Zero(t, other.given("very secret"))
}

// Where no instance that has a class may have API keys, a prompt that needs one is refused at
// once, and the error is the node's.
func TestSecretsOfNobody(t *testing.T) {
	t.Parallel()
	only := newPaidServer(t, true)
	b := newBench(t, 1, func(b *bench) {
		b.settings.Instances, b.settings.SecretsTo = []string{only.url}, []string{"gpu*"}
	})
	b.connected(2)
	eventually(t, b.hub.classes.hasLooked, time.Minute, 5*time.Millisecond)
	status, answer := b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "extra_data": {"auth_token_comfy_org": "very secret"}}`, paidPicture(1)))
	require.Equal(t, http.StatusBadRequest, status, string(answer))
	var refused struct {
		Errors map[string]struct {
			Errors []struct{ Details string }
		} `json:"node_errors"`
	}
	require.NoError(t, json.Unmarshal(answer, &refused))
	require.Len(t, refused.Errors["2"].Errors, 1, string(answer))
	require.Contains(t, refused.Errors["2"].Errors[0].Details, "secrets_to")
	b.finished(b.submitWith(paidPicture(2), `{}`))
	require.Zero(t, only.given("very secret"))
	var warned bool
	for _, f := range b.hub.Checkup().Findings(t.Context()) {
		warned = warned || f.Level == LevelWarning && strings.Contains(f.Says, "secrets_to names gpu*")
	}
	require.True(t, warned)
}
