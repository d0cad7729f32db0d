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
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(tb, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(tb, err)
	data, err := io.ReadAll(z)
	require.NoError(tb, err)
	return data
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
	i, err := catalog.Parse(infoBody(tb, v))
	require.NoError(tb, err)
	require.Empty(tb, i.Skipped())
	if v == newer {
		replacements, err := os.ReadFile(filepath.Join("testdata", "node_replacements.json"))
		require.NoError(tb, err)
		i, err = i.WithReplacements(replacements)
		require.NoError(tb, err)
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
	i, err := catalog.Parse([]byte(body))
	require.NoError(tb, err)
	return i
}

func parseGraph(tb testing.TB, raw string) *catalog.Graph {
	tb.Helper()
	g, err := catalog.ParseGraph([]byte(raw))
	require.NoError(tb, err)
	return g
}

func marshal(v pyjson.Value) string { return string(pyjson.Marshal(v)) }
