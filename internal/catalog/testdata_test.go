package catalog_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// release is a version of ComfyUI such as "0.3.64".
type release string

func (r release) AtLeast(major, minor, patch int) bool {
	want := [3]int{major, minor, patch}
	for i, part := range strings.Split(string(r), ".") {
		n, _ := strconv.Atoi(part)
		if n != want[i] {
			return n > want[i]
		}
	}
	return true
}

const (
	older release = "0.3.64"
	newer release = "0.33.0"
)

// readGzip returns an unpacked file of testdata.
func readGzip(tb testing.TB, name string) []byte {
	tb.Helper()
	f := must.Get(os.Open(filepath.Join("testdata", name)))(tb)
	defer f.Close()
	z := must.Get(gzip.NewReader(f))(tb)
	return must.Get(io.ReadAll(z))(tb)
}

// recorded is one POST /prompt to a real server and its answer.
type recorded struct {
	Scenario, Label, Body, Type, Answer string
	Status                              int
}

func recordings(tb testing.TB, v release) []recorded {
	tb.Helper()
	var list []recorded
	require.NoError(tb, json.Unmarshal(readGzip(tb, "prompts-"+string(v)+".json.gz"), &list))
	require.NotEmpty(tb, list)
	return list
}

// infoBody is the recorded GET /object_info.
func infoBody(tb testing.TB, v release) []byte {
	tb.Helper()
	return readGzip(tb, "object_info-"+string(v)+".json.gz")
}

var (
	infoOnce  sync.Mutex
	infoCache = map[release]*catalog.Info{}
)

// info is the parsed recording; the newer one knows its replacements.
func info(tb testing.TB, v release) *catalog.Info {
	tb.Helper()
	infoOnce.Lock()
	defer infoOnce.Unlock()
	if i := infoCache[v]; i != nil {
		return i
	}
	i := must.Get(catalog.Parse(infoBody(tb, v)))(tb)
	require.Empty(tb, i.Skipped())
	if v == newer {
		replacements := must.Get(os.ReadFile(filepath.Join("testdata", "node_replacements.json")))(tb)
		i = must.Get(i.WithReplacements(replacements))(tb)
	}
	infoCache[v] = i
	return i
}

// fleet is the catalog of instances with these infos.
func fleet(infos ...*catalog.Info) *catalog.Catalog {
	var sources []catalog.Source
	for _, i := range infos {
		sources = append(sources, catalog.Source{Info: i})
	}
	return catalog.Merge(nil, sources)
}

func parseInfo(tb testing.TB, body string) *catalog.Info {
	tb.Helper()
	return must.Get(catalog.Parse([]byte(body)))(tb)
}

func parseGraph(tb testing.TB, raw string) *catalog.Graph {
	tb.Helper()
	return must.Get(catalog.ParseGraph([]byte(raw)))(tb)
}

func marshal(v pyjson.Value) string { return string(pyjson.Marshal(v)) }

// The workflows that come with the bot bridge run on old and new servers: they
// may lack a model or a picture, and nothing else.
func TestExamplesFitAllReleases(t *testing.T) {
	t.Parallel()
	paths := must.Get(filepath.Glob(filepath.Join("..", "..", "examples", "bot", "*.json")))(t)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		graph := must.Get(os.ReadFile(path))(t)
		for _, v := range []release{older, newer} {
			verdict := validate(t, fleet(info(t, v)), v, string(graph))
			if verdict.Accepted() {
				continue
			}
			var refused struct {
				Nodes map[string]struct {
					Errors []struct{ Type, Details string }
				} `json:"node_errors"`
			}
			require.NoError(t, json.Unmarshal(verdict.Answer.Body, &refused))
			require.NotEmpty(t, refused.Nodes, "%s: %s", path, verdict.Answer.Body)
			for node, errs := range refused.Nodes {
				for _, e := range errs.Errors {
					require.Contains(t, []string{"value_not_in_list", "custom_validation_failed"}, e.Type, "%s: node %s: %s", path, node, e.Details)
				}
			}
		}
	}
}
