package sim

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// trace is one recorded scenario.
type trace struct {
	version string
	name    string
	text    string // the whole file
	steps   []*pyjson.Object
}

func loadTraces(t *testing.T) []trace {
	t.Helper()
	files, err := filepath.Glob("testdata/traces/*/*.json.gz")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var traces []trace
	for _, full := range files {
		traces = append(traces, loadTrace(t, full))
	}
	return traces
}

func loadTrace(t *testing.T, full string) trace {
	t.Helper()
	file, err := os.Open(full)
	require.NoError(t, err)
	defer file.Close()
	zr, err := gzip.NewReader(file)
	require.NoError(t, err)
	data, err := io.ReadAll(zr)
	require.NoError(t, err)
	v, err := pyjson.Parse(data)
	require.NoError(t, err)
	tr := trace{
		version: filepath.Base(filepath.Dir(full)),
		name:    strings.TrimSuffix(filepath.Base(full), ".json.gz"),
		text:    string(data),
	}
	for _, step := range v.(*pyjson.Object).Array("steps") {
		tr.steps = append(tr.steps, step.(*pyjson.Object))
	}
	return tr
}

func kindOf(step *pyjson.Object) string { return step.String("kind") }

// at is when the step happened, in seconds since the scenario began.
func at(step *pyjson.Object) float64 {
	v, _ := step.Get("t_ms")
	return v.(pyjson.Number).Float64() / 1000
}

// requests yields the HTTP steps.
func (tr trace) requests() []*pyjson.Object {
	return slices.DeleteFunc(slices.Clone(tr.steps), func(s *pyjson.Object) bool { return kindOf(s) != "http" })
}

// consumesNumber reports whether a POST /prompt took the next counter value.
func consumesNumber(step *pyjson.Object) bool {
	req := step.Object("request")
	if req.String("method") != "POST" || !strings.HasSuffix(req.String("path"), "/prompt") {
		return false
	}
	body, ok := req.Get("json")
	if !ok {
		v, err := pyjson.Parse([]byte(req.String("text")))
		if err != nil {
			return false
		}
		body = v
	}
	switch b := body.(type) {
	case *pyjson.Object:
		return !b.Has("number")
	case pyjson.Array, pyjson.String:
		return true
	}
	return false
}

// counter is the value of the prompt counter when the scenario began, told by
// the first answer that shows one.
func (tr trace) counter() int64 {
	var taken int64
	for _, step := range tr.requests() {
		if !consumesNumber(step) {
			continue
		}
		answer := step.Object("response").Object("json")
		if v, ok := answer.Get("number"); ok {
			if n, ok := v.(pyjson.Number).Int64(); ok && n > 0 {
				return n - taken
			}
		}
		taken++
	}
	return 0
}

var savedFile = regexp.MustCompile(`"filename\\?": \\?"([^"\\]*?)_(\d{5})_\.png\\?", \\?"subfolder\\?": \\?"([^"\\]*)\\?", \\?"type\\?": \\?"output`)

// outputsBefore lists files that must have been in the output folder, so that
// the numbers of the pictures go on where they did.
func (tr trace) outputsBefore() []string {
	lowest := map[string]int{}
	for _, m := range savedFile.FindAllStringSubmatch(tr.text, -1) {
		n, _ := strconv.Atoi(m[2]) // the pattern has digits only
		prefix := filepath.Join(m[3], m[1])
		if have, ok := lowest[prefix]; !ok || n < have {
			lowest[prefix] = n
		}
	}
	var files []string
	for prefix, n := range lowest {
		if n > 1 {
			files = append(files, prefix+"_"+strings.Repeat("0", 5-len(strconv.Itoa(n-1)))+strconv.Itoa(n-1)+"_.png")
		}
	}
	return files
}

// inputsBefore lists pictures that must have been in the input folder: those
// the first listing of LoadImage shows and nobody uploads meanwhile.
func (tr trace) inputsBefore() []string {
	var names []string
	for _, step := range tr.requests() {
		if step.Object("request").String("path") != "/object_info/LoadImage" {
			continue
		}
		spec := step.Object("response").Object("json").Object("LoadImage").Object("input").Object("required").Array("image")
		if len(spec) == 0 {
			continue
		}
		options, _ := spec[0].(pyjson.Array)
		for _, v := range options {
			if name := pyStr(v); !strings.Contains(tr.text, `"filename":"`+name+`"`) && !strings.Contains(tr.text, `"filename": "`+name+`"`) {
				names = append(names, name)
			}
		}
		return names
	}
	return nil
}

// outputOrders returns the recorded orders of outputs to execute. Python keeps
// them in a set, so that the order differs between server starts.
func (tr trace) outputOrders() map[string][]string {
	orders := map[string][]string{}
	var look func(v pyjson.Value)
	look = func(v pyjson.Value) {
		switch v := v.(type) {
		case pyjson.Array:
			if len(v) == 5 {
				if ids, ok := v[4].(pyjson.Array); ok && len(ids) > 1 {
					var order []string
					for _, id := range ids {
						order = append(order, pyStr(id))
					}
					orders[setKey(order)] = order
				}
			}
			for _, item := range v {
				look(item)
			}
		case *pyjson.Object:
			for _, item := range v.All() {
				look(item)
			}
		}
	}
	for _, step := range tr.requests() {
		if v, err := pyjson.Parse([]byte(step.Object("response").String("text"))); err == nil {
			look(v)
		}
	}
	return orders
}

func setKey(ids []string) string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return strings.Join(ids, " ")
}
