package hub_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/color"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/rules"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/submit"
)

// dataURL is a file as some clients put it into a prompt.
func dataURL(content string) string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(content))
}

// carriedName is the name that a prompt was queued with for node 1.
func (b *bench) carriedName(tenant, id string) string {
	b.t.Helper()
	var entries map[string]struct {
		Prompt []json.RawMessage
		Status struct {
			Text string `json:"status_str"`
		}
	}
	eventually(b.t, func() bool {
		_, answer := b.as(tenant, "GET", "/history/"+id, "")
		return json.Unmarshal([]byte(answer), &entries) == nil && len(entries) == 1
	}, time.Minute, 5*time.Millisecond)
	require.Equal(b.t, "success", entries[id].Status.Text)
	graph := decoded[map[string]struct{ Inputs struct{ Image string } }](b.t, entries[id].Prompt[2])
	return graph["1"].Inputs.Image
}

func TestFileInsideAPrompt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{}, serving(sim.Config{}))
		picture := pixel(t, color.Gray{7})
		for n, tenant := range []string{"ann", "bob", "ann"} {
			id := fmt.Sprintf("carried-%d", n)
			b.acts(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, loading(dataURL(picture)), id))
			name := b.carriedName(tenant, id)
			require.Regexp(t, `^embedded/[0-9a-f]{32}\.png$`, name)
			require.Equal(t, picture, b.acts(tenant, "GET", "/view?type=input&subfolder=embedded&filename="+strings.TrimPrefix(name, "embedded/"), ""))
			require.Equal(t, http.StatusNotFound, statusOf(b.as("eve", "GET", "/view?type=input&subfolder=embedded&filename="+strings.TrimPrefix(name, "embedded/"), "")), "it is ann's and bob's alone")
			require.Equal(t, http.StatusBadRequest, statusOf(b.as("eve", "POST", "/prompt", `{"prompt": `+loading(name)+`}`)))
			_, listed := b.as(tenant, "GET", "/object_info/LoadImage", "")
			require.NotContains(t, listed, "embedded", "the widget's list stays as it is")
		}
		require.EqualValues(t, 1, b.uploadCount("ann"), "the same file is stored once")
		require.EqualValues(t, 1, b.uploadCount("bob"))
	})
}

// uploadCount is how many uploads count against a tenant's limit.
func (b *bench) uploadCount(tenant string) int64 {
	b.t.Helper()
	counts := must(b.hub.DB.Client().HGetAll(b.t.Context(), b.hub.DB.Key("files", "uploads", tenant)).Result())(b.t)
	var n int64
	if counts["=files"] != "" {
		must(fmt.Sscan(counts["=files"], &n))(b.t)
	}
	return n
}

// A prompt that is refused leaves nothing behind, and its answer does not repeat the file.
func TestRefusedFilesInsideAPrompt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		good := dataURL(pixel(t, color.Gray{1}))
		var many strings.Builder
		for n := range submit.MaxCarried + 1 {
			fmt.Fprintf(&many, `"l%d": {"class_type": "LoadImage", "inputs": {"image": %q}},`, n, good)
		}
		b := shared(t, config.TenantLimits{}, func(b *bench) {
			b.instances = append(b.instances, newInstance(t, sim.Config{}))
			b.settings.MaxUpload = 1000
		})
		for name, test := range map[string]struct{ graph, node, details string }{
			"not base64":   {loadingTwo(good, "data:image/png;base64,#"), "3", "image - Invalid image file: the data: URL is not valid base64"},
			"a page":       {loadingTwo(good, dataURL("<html><script>")), "3", "image - Invalid image file: the data: URL has no picture, video or sound of a known format"},
			"too large":    {loadingTwo(good, dataURL("\x89PNG\r\n\x1a\n"+strings.Repeat("x", 1000))), "3", "image - Invalid image file: the file in the data: URL has more than 1000 bytes"},
			"another node": {`{"1": {"class_type": "LoadImage", "inputs": {"image": "` + good + `"}}, "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0]}}}`, "2", "filename_prefix"},
			"too many":     {`{` + many.String() + `"2": {"class_type": "SaveImage", "inputs": {"images": ["l0", 0], "filename_prefix": "x"}}}`, fmt.Sprintf("l%d", submit.MaxCarried), "image - Invalid image file: a prompt can have 64 files as URLs"},
		} {
			answer := answered(b.as("ann", "POST", "/prompt", `{"prompt": `+test.graph+`}`))(t, http.StatusBadRequest, name)
			require.NotContains(t, answer, good[40:], name)
			require.Zero(t, b.uploadCount("ann"), name)
			refusal := nodeErrors(t, answer)
			require.Contains(t, refusal, test.node, name+": "+answer)
			require.Equal(t, test.details, refusal[test.node].Errors[0].Details, name)
		}
		// ComfyUI runs the outputs that are good. Only what they read is stored.
		require.Contains(t, b.acts("ann", "POST", "/prompt", `{"prompt": `+loadingTwo(good, "hers.png")+`}`), "hers.png")
		require.EqualValues(t, 1, b.uploadCount("ann"))
	})
}

func TestFileInsideAPromptCounts(t *testing.T) {
	t.Parallel()
	for limit, limits := range map[string]config.TenantLimits{"inputs": {Inputs: 100}, "input_files": {InputFiles: 1}} {
		runInBubble(t, limit, func(t *testing.T) {
			b := shared(t, limits, serving(sim.Config{}))
			post := func(shade uint8) (int, string) {
				return b.as("ann", "POST", "/prompt", `{"prompt": `+loading(dataURL(pixel(t, color.Gray{shade})))+`}`)
			}
			answered(post(1))(t, http.StatusOK)
			b.refused(limit, http.StatusInsufficientStorage, answered(post(2))(t, http.StatusInsufficientStorage))
			answered(post(1))(t, http.StatusOK, "the same file again")
		})
	}
}

// Whoever holds the name of such a file beforehand does not change what a prompt reads.
func TestFileInsideAPromptOwnsItsName(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{}, serving(sim.Config{}))
		picture := pixel(t, color.Gray{7})
		post := func(id string) string {
			b.acts("ann", "POST", "/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, loading(dataURL(picture)), id))
			return strings.TrimPrefix(b.carriedName("ann", id), "embedded/")
		}
		name := post("first")
		answered(b.uploadAs("ann", name, pixel(t, color.Gray{8}), "subfolder", "embedded", "overwrite", "true"))(t, http.StatusOK)
		require.Equal(t, name, post("second"))
		_, got := b.as("ann", "GET", "/view?type=input&subfolder=embedded&filename="+name, "")
		require.Equal(t, picture, got)
	})
}

// A prompt that the operator does not allow is refused as ComfyUI refuses one whose nodes have
// errors, in each dialect; it reaches no instance.
func TestRules(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{}, func(b *bench) {
			b.settings.Rules = rules.Rules{DenyClasses: []string{"Simulated*"}, Max: map[string]float64{"width": 100, "batch": 2}}
			b.settings.RulesOf = map[string]rules.Rules{"bob": {DenyModels: []string{"secret*"}}}
			b.instances = append(b.instances, newInstance(t, sim.Config{}))
		})
		post := func(tenant, graph string) (int, string) {
			return b.as(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "a"}`, graph))
		}
		wide := strings.Replace(picture(1), `"width": 64`, `"width": 101`, 1)
		large := strings.Replace(wide, `"batch_size": 1`, `"batch_size": "3"`, 1)
		for _, c := range []struct {
			graph, node, class string
			inputs             []string
		}{
			{wide, "1", "EmptyImage", []string{"width"}},
			{large, "1", "EmptyImage", []string{"width", "batch_size"}},
			{work(1, 1, "none"), "2", "SimulatedWork", nil},
		} {
			text := answered(post("ann", c.graph))(t, http.StatusBadRequest)
			answer := decoded[struct {
				Error      struct{ Type, Message, Details string }
				NodeErrors map[string]struct {
					Errors []struct {
						Type, Message, Details string
						ExtraInfo              struct {
							InputName string `json:"input_name"`
							Rule      string
						} `json:"extra_info"`
					}
					Class      string   `json:"class_type"`
					Dependents []string `json:"dependent_outputs"`
				} `json:"node_errors"`
			}](t, text)
			require.Equal(t, "prompt_outputs_failed_validation", answer.Error.Type)
			require.Len(t, answer.NodeErrors, 1, text)
			node := answer.NodeErrors[c.node]
			require.Equal(t, c.class, node.Class)
			require.NotEmpty(t, node.Dependents)
			if c.inputs == nil {
				require.Len(t, node.Errors, 1)
				require.Equal(t, "exception_during_validation", node.Errors[0].Type)
				require.Equal(t, "class_type", node.Errors[0].ExtraInfo.Rule)
				require.Contains(t, node.Errors[0].Details, c.class)
				continue
			}
			require.Len(t, node.Errors, len(c.inputs))
			for n, input := range c.inputs {
				require.Equal(t, "value_bigger_than_max", node.Errors[n].Type, "the web UI shows no reason of a type that it does not know")
				require.Regexp(t, `^Value \d+ bigger than max of \d+$`, node.Errors[n].Message)
				require.Equal(t, input, node.Errors[n].ExtraInfo.InputName)
				require.Contains(t, node.Errors[n].Details, "at most")
			}
		}
		text := answered(b.as("ann", "POST", "/hub/v1/submit", fmt.Sprintf(`{"workflow": %s}`, wide)))(t, http.StatusUnprocessableEntity)
		require.Contains(t, text, "at most")
		require.Zero(t, started(b))
		answered(post("bob", wide))(t, http.StatusOK, "bob has rules of his own")
		answered(post("ann", picture(2)))(t, http.StatusOK)
	})
}

// elsewhere is a server on the internet, as far as the hub knows.
func elsewhere(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(handler)
	t.Cleanup(s.Close)
	return s
}

// fetchingFrom is a hub that may fetch from a server.
func fetchingFrom(t *testing.T, limits config.TenantLimits, server *httptest.Server, change ...func(*bench)) *bench {
	t.Helper()
	u := must(url.Parse(server.URL))(t)
	hosts := must(egress.ParseHosts([]string{u.Host}))(t)
	b := shared(t, limits, append([]func(*bench){func(b *bench) {
		b.instances = append(b.instances, newInstance(t, sim.Config{}))
		b.settings.InputsFrom = hosts
	}}, change...)...)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	b.hub.Submitter.Fetcher.Options.Roots = roots
	return b
}

func TestFileBehindAURL(t *testing.T) {
	t.Parallel()
	picture := pixel(t, color.Gray{9})
	var asked atomic.Int64
	server := elsewhere(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/moved.png" {
			http.Redirect(w, r, "/a.png", http.StatusFound)
			return
		}
		w.Header().Set("Content-Type", "text/html") // what counts is the content
		_, _ = io.WriteString(w, picture)
	})
	b := fetchingFrom(t, config.TenantLimits{}, server)
	var names []string
	for n, tenant := range []string{"ann", "bob"} {
		id := fmt.Sprintf("fetched-%d", n)
		link := server.URL + "/a.png?signature=secret"
		b.acts(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, loadingTwo(link, link), id))
		name := b.carriedName(tenant, id)
		require.Regexp(t, `^embedded/[0-9a-f]{32}\.png$`, name)
		names = append(names, name)
		_, got := b.as(tenant, "GET", "/view?type=input&subfolder=embedded&filename="+strings.TrimPrefix(name, "embedded/"), "")
		require.Equal(t, picture, got)
		require.EqualValues(t, 1, b.uploadCount(tenant))
		require.EqualValues(t, n+1, asked.Load(), "a URL is fetched once for a prompt")
		_, history := b.as(tenant, "GET", "/history/"+id, "")
		require.NotContains(t, history, "secret", "a signed link is not kept")
	}
	require.Equal(t, names[0], names[1], "the name comes from the content")
	answered(b.as("eve", "GET", "/view?type=input&subfolder=embedded&filename="+strings.TrimPrefix(names[0], "embedded/"), ""))(t, http.StatusNotFound)
	b.acts("ann", "POST", "/prompt", `{"prompt": `+loading(server.URL+"/moved.png")+`}`)
	require.Zero(t, b.hub.Submitter.Fetcher.Busy(), "no turn is left over")
}

func TestRefusedURLs(t *testing.T) {
	t.Parallel()
	private := elsewhere(t, func(http.ResponseWriter, *http.Request) { t.Error("a server that is not allowed was called") })
	big := "\x89PNG\r\n\x1a\n" + strings.Repeat("x", 1000)
	server := elsewhere(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			_, _ = io.WriteString(w, "\x89PNG\r\n\x1a\n"+strings.Repeat("x", 600))
		case "/good2":
			_, _ = io.WriteString(w, "\x89PNG\r\n\x1a\n"+strings.Repeat("y", 600))
		case "/private":
			http.Redirect(w, r, private.URL, http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/page":
			_, _ = io.WriteString(w, "<html>")
		case "/empty":
		case "/big":
			_, _ = io.WriteString(w, big)
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, big); err != nil {
					return
				}
			}
		case "/broken":
			w.Header().Set("Content-Length", "900")
			_, _ = io.WriteString(w, "\x89PNG\r\n\x1a\n")
		default:
			http.NotFound(w, r)
		}
	})
	b := fetchingFrom(t, config.TenantLimits{}, server, func(b *bench) { b.settings.MaxUpload = 1000 })
	u := must(url.Parse(server.URL))(t)
	tooLarge := "the files behind a prompt's URLs may have 1000 bytes together"
	for link, reason := range map[string]string{
		server.URL + "/none":    "the URL was answered with status 404",
		server.URL + "/private": "the hub's operator does not allow this host",
		server.URL + "/loop":    "the URL redirects too often",
		server.URL + "/page":    "the URL leads to no picture, video or sound of a known format",
		server.URL + "/empty":   "the URL leads to no picture, video or sound of a known format",
		server.URL + "/big":     tooLarge,
		server.URL + "/endless": tooLarge,
		server.URL + "/broken":  "the URL cannot be fetched",
		private.URL:             "the hub's operator does not allow this host",
		"http://" + u.Host:      "only https:// URLs may be called",
		"https://me@" + u.Host:  "the URL has a user name",
		server.URL + "/a b":     "the URL is not valid",
		server.URL + "/" + strings.Repeat("a", submit.MaxURL): "a URL can have 8190 bytes",
	} {
		answer := answered(b.as("ann", "POST", "/prompt", `{"prompt": `+loadingTwo(dataURL(pixel(t, color.Gray{1})), link+"#secret")+`}`))(t, http.StatusBadRequest, link)
		refusal := nodeErrors(t, answer)
		require.Len(t, refusal, 1)
		require.Equal(t, "image - Invalid image file: "+reason, refusal["3"].Errors[0].Details, link)
		require.NotContains(t, answer, "secret")
		require.Zero(t, b.uploadCount("ann"), link)
	}
	_, answer := b.as("ann", "POST", "/prompt", `{"prompt": `+loadingTwo(server.URL+"/good", server.URL+"/good2")+`}`)
	require.Contains(t, answer, tooLarge, "all files of a prompt count together")
	require.Zero(t, b.hub.Submitter.Fetcher.Busy())
}

// Without hosts that may be called, a URL is what it is to ComfyUI: not a file name.
func TestURLsAreOff(t *testing.T) {
	t.Parallel()
	server := elsewhere(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was called") })
	b := shared(t, config.TenantLimits{}, serving(sim.Config{}))
	require.Contains(t, answered(b.as("ann", "POST", "/prompt", `{"prompt": `+loading(server.URL)+`}`))(t, http.StatusBadRequest), "image - Invalid image file: "+server.URL)
}

// A client that hangs up ends the fetching, and its turn.
func TestFetchingEndsWithItsClient(t *testing.T) {
	t.Parallel()
	called, ended := make(chan struct{}), make(chan struct{})
	server := elsewhere(t, func(_ http.ResponseWriter, r *http.Request) {
		close(called)
		<-r.Context().Done()
		close(ended)
	})
	b := fetchingFrom(t, config.TenantLimits{}, server)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	p := submissionOf(t, loading(server.URL))
	go func() {
		b.hub.Submitter.Submit(ctx, p, func(_ submit.Accepted, err error) { done <- err })
	}()
	<-called
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	<-ended
	eventually(t, func() bool { return b.hub.Submitter.Fetcher.Busy() == 0 }, time.Minute, time.Millisecond)
}
