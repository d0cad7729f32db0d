package replay

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

//go:embed testdata
var recorded embed.FS

// Trace is one recorded scenario.
type Trace struct {
	// Version is the ComfyUI release that was recorded.
	Version string
	// Name is the name of the scenario.
	Name  string
	text  string // the whole file
	steps []*pyjson.Object
}

// Traces loads every recorded scenario, by version and name.
func Traces() ([]Trace, error) {
	files, err := fs.Glob(recorded, "testdata/*/*.json.gz")
	if err != nil {
		return nil, err
	}
	traces := make([]Trace, len(files))
	for n, name := range files {
		if traces[n], err = load(name); err != nil {
			return nil, fmt.Errorf("replay: %s: %w", name, err)
		}
	}
	return traces, nil
}

func load(name string) (Trace, error) {
	file, err := recorded.Open(name)
	if err != nil {
		return Trace{}, err
	}
	defer file.Close()
	zr, err := gzip.NewReader(file)
	if err != nil {
		return Trace{}, err
	}
	data, err := io.ReadAll(zr)
	if err != nil {
		return Trace{}, err
	}
	v, err := pyjson.Parse(data)
	if err != nil {
		return Trace{}, err
	}
	tr := Trace{
		Version: path.Base(path.Dir(name)),
		Name:    strings.TrimSuffix(path.Base(name), ".json.gz"),
		text:    string(data),
	}
	scenario, _ := v.(*pyjson.Object)
	for _, step := range scenario.Array("steps") {
		if s, ok := step.(*pyjson.Object); ok {
			tr.steps = append(tr.steps, s)
		}
	}
	return tr, nil
}

// classNames finds the node classes that a scenario names, and requests for all of them.
var classNames = regexp.MustCompile(`class_type\\?": ?\\?"([^"\\]+)|/object_info/([^"]+)"|"path":"(?:/api)?/object_info()"`)

// Classes are the node classes that matter to the scenario, none if all do.
func (tr Trace) Classes() []string {
	names := []string{"EmptyImage", "ImageInvert", "SaveImage"} // what a subgraph is made of
	for _, found := range classNames.FindAllStringSubmatch(tr.text, -1) {
		if found[1] == "" && found[2] == "" {
			return nil
		}
		names = append(names, found[1]+found[2])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Requests are the HTTP steps.
func (tr Trace) Requests() []*pyjson.Object {
	return slices.DeleteFunc(slices.Clone(tr.steps), func(s *pyjson.Object) bool { return kindOf(s) != "http" })
}

func kindOf(step *pyjson.Object) string { return step.String("kind") }

// at returns when the step happened, in seconds since the start of the scenario.
func at(step *pyjson.Object) float64 {
	v, _ := step.Get("t_ms")
	return v.(pyjson.Number).Float64() / 1000
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

// Counter returns the value of the prompt counter at the start of the scenario,
// from the first answer that shows it.
func (tr Trace) Counter() int64 {
	var taken int64
	for _, step := range tr.Requests() {
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

// orphans returns the prompts that were posted without a client id.
func (tr Trace) orphans() map[string]bool {
	ids := map[string]bool{}
	for _, step := range tr.Requests() {
		req := step.Object("request")
		body := req.Object("json")
		if req.String("method") != "POST" || !strings.HasSuffix(req.String("path"), "/prompt") {
			continue
		}
		if body.String("client_id") == "" && body.Object("extra_data").String("client_id") == "" {
			ids[step.Object("response").Object("json").String("prompt_id")] = true
		}
	}
	delete(ids, "") // refused ones
	return ids
}

// OneCaller reports whether all sockets and prompts have one client id. In that
// case a server that counts the prompts of each caller counts the same as one that
// counts all.
func (tr Trace) OneCaller() bool {
	ids := map[string]bool{}
	for _, step := range tr.steps {
		switch req := step.Object("request"); {
		case kindOf(step) == "ws_connect":
			u, err := url.Parse(step.String("path"))
			ids[u.Query().Get("clientId")] = err == nil
		case kindOf(step) == "http" && req.String("method") == "POST" && strings.HasSuffix(req.String("path"), "/prompt"):
			ids[req.Object("json").String("client_id")] = true
		}
	}
	return len(ids) == 1 && !ids[""]
}

var savedFile = regexp.MustCompile(`"filename\\?": \\?"([^"\\]*?)_(\d{5})_\.png\\?", \\?"subfolder\\?": \\?"([^"\\]*)\\?", \\?"type\\?": \\?"output`)

// OutputsBefore lists files that must have been in the output folder, so that the
// numbers of the pictures continue correctly.
func (tr Trace) OutputsBefore() []string {
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

// InputsBefore lists pictures that must have been in the input folder: those that
// the first listing of LoadImage shows and that are not uploaded in the meantime.
func (tr Trace) InputsBefore() []string {
	var names []string
	for _, step := range tr.Requests() {
		if step.Object("request").String("path") != "/object_info/LoadImage" {
			continue
		}
		spec := step.Object("response").Object("json").Object("LoadImage").Object("input").Object("required").Array("image")
		if len(spec) == 0 {
			continue
		}
		options, _ := spec[0].(pyjson.Array)
		for _, v := range options {
			if name := text(v); !strings.Contains(tr.text, `"filename":"`+name+`"`) && !strings.Contains(tr.text, `"filename": "`+name+`"`) {
				names = append(names, name)
			}
		}
		return names
	}
	return nil
}

// Arrange puts the outputs of a prompt into the recorded order. Python keeps them
// in a set, so the order differs between server starts.
func (tr Trace) Arrange() func(outputs []string) []string {
	orders := tr.outputOrders()
	return func(outputs []string) []string {
		if order, ok := orders[setKey(outputs)]; ok {
			return order
		}
		return outputs
	}
}

func (tr Trace) outputOrders() map[string][]string {
	orders := map[string][]string{}
	var look func(v pyjson.Value)
	look = func(v pyjson.Value) {
		switch v := v.(type) {
		case pyjson.Array:
			if len(v) == 5 {
				if ids, ok := v[4].(pyjson.Array); ok && len(ids) > 1 {
					var order []string
					for _, id := range ids {
						order = append(order, text(id))
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
	for _, step := range tr.Requests() {
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

// text returns a string unchanged, and any other value as JSON.
func text(v pyjson.Value) string {
	if s, ok := v.(pyjson.String); ok {
		return string(s)
	}
	return string(pyjson.Marshal(v))
}

// integer returns a member that is an integer, or 0.
func integer(o *pyjson.Object, key string) int64 {
	v, _ := o.Get(key)
	n, _ := v.(pyjson.Number)
	i, _ := n.Int64()
	return i
}
