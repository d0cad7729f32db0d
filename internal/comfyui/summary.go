package comfyui

import (
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Members of a summary that are not ComfyUI's own.
const (
	// summaryInEntry marks a summary that was too large to keep: only what
	// listings sort and filter by is in it, the rest is to be read from the
	// history entry.
	summaryInEntry = "in_entry"
	// maxSummary bounds a stored summary, in bytes. Tracebacks with the
	// values of a node's inputs can be megabytes.
	maxSummary = 16 << 10
)

// Summarize makes of a history entry what the jobs API shows of it beside id,
// status, priority and creation: times, error, how many outputs there are, the
// one to show, and the workflow's id. What cannot be read is left out; an odd
// prompt of one client must not break the listing of all.
func Summarize(entry []byte) *pyjson.Object {
	e, _ := ParseEntry(entry)
	s := pyjson.NewObject()
	var start, end, failure pyjson.Value
	for _, m := range e.Messages {
		data := parseObject(m.Data)
		if data == nil {
			continue
		}
		at, _ := data.Get("timestamp")
		switch m.Type {
		case TypeExecutionStart:
			start = at
		case TypeExecutionError:
			end, failure = at, data
		case TypeExecutionSuccess, TypeExecutionInterrupted:
			end = at
		}
	}
	set(s, "execution_start_time", start)
	set(s, "execution_end_time", end)
	set(s, "execution_error", failure)
	o := countOutputs(parseObject(e.Outputs))
	s.Set("outputs_count", pyjson.Int(o.count))
	s.Set("previewable_outputs_count", pyjson.Int(o.previewable))
	if shown := o.shown(); shown != nil {
		s.Set("preview_output", shown)
	}
	set(s, "workflow_id", WorkflowID(e.Extra))
	return s
}

// SummarizeStored is Summarize in the form in which it is kept beside an
// entry: at most 16 KiB.
func SummarizeStored(entry []byte) []byte {
	s := Summarize(entry)
	if raw := pyjson.Marshal(s); len(raw) <= maxSummary {
		return raw
	}
	small := pyjson.NewObject(pyjson.Member{Key: summaryInEntry, Value: pyjson.Bool(true)})
	for _, key := range []string{"execution_start_time", "execution_end_time", "workflow_id"} {
		if v, ok := s.Get(key); ok && len(pyjson.Marshal(v)) <= maxSummary/4 {
			small.Set(key, v)
		}
	}
	return pyjson.Marshal(small)
}

// ParseSummary reads a stored summary. whole is false when it is missing,
// damaged or shortened, and the entry has to be read to show it.
func ParseSummary(stored []byte) (s *pyjson.Object, whole bool) {
	if s = parseObject(stored); s == nil {
		return pyjson.NewObject(), false
	}
	return s, !s.Has(summaryInEntry)
}

// WorkflowID is the id of the workflow that the web interface sent along in
// extra_data, nil where there is none. A real server answers 500 to the whole
// listing when a member on the way is null or no object.
func WorkflowID(extra []byte) pyjson.Value {
	id, _ := parseObject(extra).Object("extra_pnginfo").Object("workflow").Get("id")
	return id
}

// NormalizeOutputs gives the outputs of a history entry the form that the
// jobs API shows: names of 3D files become file objects, nulls are left out.
// What is no object is given back as it is.
func NormalizeOutputs(outputs []byte) pyjson.Value {
	v, err := pyjson.Parse(outputs)
	if err != nil {
		return pyjson.NewObject()
	}
	nodes, ok := v.(*pyjson.Object)
	if !ok {
		return v
	}
	for _, v := range nodes.All() {
		ui, _ := v.(*pyjson.Object)
		for media, v := range ui.All() {
			items, ok := v.(pyjson.Array)
			if !ok || media == "animated" {
				continue
			}
			kept := pyjson.Array{}
			for _, item := range items {
				if item == (pyjson.Null{}) {
					continue
				}
				if file := outputFile(item); file != nil {
					item = file
				}
				kept = append(kept, item)
			}
			ui.Set(media, kept)
		}
	}
	return nodes
}

// set sets a member unless there is no value: the jobs API leaves such out.
func set(o *pyjson.Object, key string, v pyjson.Value) {
	if v != nil && v != (pyjson.Null{}) {
		o.Set(key, v)
	}
}

// parseObject reads a raw JSON object; nil, which reads as empty, if it is none.
func parseObject(raw []byte) *pyjson.Object {
	v, err := pyjson.Parse(raw)
	if err != nil {
		return nil
	}
	o, _ := v.(*pyjson.Object)
	return o
}
