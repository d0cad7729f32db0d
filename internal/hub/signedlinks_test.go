package hub

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// linkTo asks for a link to a file.
func (b *bench) linkTo(body string) (int, string) {
	b.t.Helper()
	status, answer := b.post("/hub/files", body)
	link := decoded[struct {
		URL     string
		Expires int64
	}](b.t, answer)
	return status, link.URL
}

func TestSignedLinks(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.tenant = "telegram:12345" }), func(t *testing.T, b *bench) {
		name := b.finished(b.submit(picture(0xff), "ann")).Outputs["2"].Images[0].Filename
		_, whole := b.get("/view?filename=" + name)
		status, link := b.linkTo(fmt.Sprintf(`{"filename": %q}`, name))
		require.Equal(t, http.StatusOK, status)
		require.True(t, strings.HasPrefix(link, "/hub/files/"+name+"?exp="), link)
		require.NotContains(t, link, "12345", "a link tells nobody whose it is")

		fetch := func(link string, header ...string) (*http.Response, string) {
			response := b.send(exchange{method: "GET", path: link, header: headers(header...)})
			_, body := read(t, response)
			return response, string(body)
		}
		// It works for anybody, even from a page of another site.
		b.tenant = "somebody else"
		response, body := fetch(link, "Sec-Fetch-Site", "cross-site")
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.Equal(t, string(whole), body)
		require.Equal(t, "image/png", response.Header.Get("Content-Type"))
		require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "inline; filename="+name, response.Header.Get("Content-Disposition"))
		response, body = fetch(link, "Range", "bytes=1-3")
		require.Equal(t, http.StatusPartialContent, response.StatusCode)
		require.Equal(t, "PNG", body)
		response, _ = fetch(link, "If-None-Match", response.Header.Get("Etag"))
		require.Equal(t, http.StatusNotModified, response.StatusCode)

		// Nobody gets a link to another tenant's file or to a file that does not exist.
		answered(b.linkTo(fmt.Sprintf(`{"filename": %q}`, name)))(t, http.StatusNotFound)
		b.tenant = "telegram:12345"
		for ask, want := range map[string]int{
			fmt.Sprintf(`{"filename": %q, "type": "input"}`, name):   http.StatusNotFound,
			fmt.Sprintf(`{"filename": %q, "type": "nothing"}`, name): http.StatusNotFound,
			`[]`:                              http.StatusBadRequest,
			`{"filename": 3}`:                 http.StatusBadRequest,
			`{"filename": "a", "type": null}`: http.StatusNotFound,
		} {
			status, _ = b.linkTo(ask)
			require.Equal(t, want, status, ask)
		}

		// Links that were tampered with.
		parsed := must(url.Parse(link))(t)
		exp, sig := parsed.Query().Get("exp"), parsed.Query().Get("sig")
		other := b.finished(b.submit(picture(0xff00), "ann")).Outputs["2"].Images[0].Filename
		for _, forged := range []string{
			"/hub/files/" + name, "/hub/files/" + name + "?sig=" + sig, "/hub/files/" + name + "?exp=" + exp,
			"/hub/files/" + name + "?exp=9" + exp + "&sig=" + sig, "/hub/files/" + other + "?exp=" + exp + "&sig=" + sig,
			"/hub/files/" + name + "?exp=" + exp + "&sig=" + strings.ToLower(sig), "/hub/files/" + name + "?exp=" + exp + "&sig=%00",
		} {
			response, _ = fetch(forged)
			require.Equal(t, http.StatusForbidden, response.StatusCode, forged)
		}

		// A restart changes nothing. A link stops working when its time is up.
		b.stop()
		b.start()
		b.gets(link)
		_, brief := b.linkTo(fmt.Sprintf(`{"filename": %q, "expires_in": 1}`, name))
		eventually(t, func() bool {
			response, _ = fetch(brief)
			return response.StatusCode == http.StatusGone
		}, 30*time.Second, 50*time.Millisecond)
		long := must(b.hub.links.Make(t.Context(), "telegram:12345", job.FileRef{Type: "output", Filename: name}, time.Now().AddDate(10, 0, 0)))(t)
		require.Contains(t, string(answered(b.get(api.LinkPath+long))(t, http.StatusForbidden)), "longer than links may")
	})
}

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
// instances say about its nodes; a prompt that does not need it goes anywhere, without the key
// where that may not go. If nobody may have it, the prompt is refused, and the reason says what to
// do.
func TestSecretsGoWhereTheyMay(t *testing.T) {
	t.Parallel()
	const secret = `{"api_key_comfy_org": "very secret"}`
	own, other := newPaidServer(t, true), newPaidServer(t, false) // the other one turns the need off, if it is believed
	var names [2]string
	b := newBench(t, 0, func(b *bench) {
		b.settings.Instances = []string{own.url, other.url}
		for n, url := range b.settings.Instances {
			names[n], _ = fleet.StaticName(url)
		}
		b.settings.SecretsTo = []string{names[0]}
	})
	eventually(t, b.hub.classes.Beginning.HasLooked, time.Minute, 5*time.Millisecond)
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
	text := b.posts("/hub/explain", fmt.Sprintf(`{"prompt_id": %q}`, waits))
	require.Contains(t, string(text), names[1]+`", "state": "idle", "can_run": false, "why": "it lacks leave to have the API keys of prompts (secrets_to in the hub's Caddyfile)`)
	require.NoError(t, b.hub.Operator().Resume(t.Context(), queue.StopInstance(names[0])))
	b.finished(waits)
	require.Zero(t, other.given("very secret"))
}

// If no instance that has a class may have API keys, a prompt that needs one is refused at once,
// and the error is the node's.
func TestSecretsOfNobody(t *testing.T) {
	t.Parallel()
	only := newPaidServer(t, true)
	b := newBench(t, 1, func(b *bench) {
		b.settings.Instances, b.settings.SecretsTo = []string{only.url}, []string{"gpu*"}
	})
	eventually(t, b.hub.classes.Beginning.HasLooked, time.Minute, 5*time.Millisecond)
	answer := answered(b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "extra_data": {"auth_token_comfy_org": "very secret"}}`, paidPicture(1))))(t, http.StatusBadRequest)
	refused := nodeErrors(t, answer)
	require.Len(t, refused["2"].Errors, 1, string(answer))
	require.Contains(t, refused["2"].Errors[0].Details, "secrets_to")
	b.finished(b.submitWith(paidPicture(2), `{}`))
	require.Zero(t, only.given("very secret"))
	var warned bool
	for _, f := range b.hub.Checkup().Findings(t.Context()) {
		warned = warned || f.Level == config.LevelWarning && strings.Contains(f.Says, "secrets_to names gpu*")
	}
	require.True(t, warned)
}
