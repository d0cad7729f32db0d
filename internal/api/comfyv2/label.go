package comfyv2

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// maxMetadata bounds the metadata of a job, in bytes, and maxLabels its pairs, if it is a map.
	maxMetadata, maxLabels = 1024, 16
	// mostPriority bounds the priority that a client may name. It keeps its own; the queue knows
	// only job.MaxPriority of it.
	mostPriority = 1_000_000
)

// label is what a client has asked to keep with its job.
type label struct {
	// metadata is a text or an object of texts, nil for none.
	metadata pyjson.Value
	priority *int64
}

// readLabel reads the members metadata and priority of a job.
func readLabel(o *pyjson.Object) (label, error) {
	var l label
	v, _ := o.Get("metadata")
	switch m := v.(type) {
	case nil, pyjson.Null:
	case pyjson.String:
		if len(m) > maxMetadata {
			return l, invalid("'metadata' may have " + strconv.Itoa(maxMetadata) + " bytes.")
		}
		l.metadata = m
	case *pyjson.Object:
		if err := checkLabels(m); err != nil {
			return l, err
		}
		l.metadata = m
	default:
		return l, invalid("'metadata' must be a text, or an object of texts.")
	}
	v, _ = o.Get("priority")
	switch p := v.(type) {
	case nil, pyjson.Null:
	case pyjson.Number:
		n, ok := p.Int64()
		if !ok || !p.IsInt() || n < -mostPriority || n > mostPriority {
			return l, invalid("'priority' must be a whole number from -1000000 to 1000000.")
		}
		l.priority = &n
	default:
		return l, invalid("'priority' must be a whole number.")
	}
	return l, nil
}

func invalid(message string) error {
	return &problem{status: 422, code: codeRequest, message: message}
}

// checkLabels checks metadata that is a map.
func checkLabels(m *pyjson.Object) error {
	odd := func(message string) error { return &problem{status: 422, code: "metadata_invalid", message: message} }
	if m.Len() > maxLabels {
		return odd("'metadata' has " + strconv.Itoa(m.Len()) + " pairs; it may have " + strconv.Itoa(maxLabels) + ".")
	}
	size := 0
	for key, value := range m.All() {
		v, ok := value.(pyjson.String)
		if !ok || key == "" {
			return odd("'metadata': the value of " + strconv.Quote(key[:min(len(key), 64)]) + " must be a text.")
		}
		size += len(key) + len(v)
	}
	if size > maxMetadata {
		return odd("'metadata' may have " + strconv.Itoa(maxMetadata) + " bytes.")
	}
	return nil
}

// clamped is the priority as the queue knows it.
func (l label) clamped() int {
	if l.priority == nil {
		return 0
	}
	return int(min(max(*l.priority, job.MinPriority), job.MaxPriority))
}

// encode writes the label for the job's record, "" for an empty one.
func (l label) encode() string {
	o := &pyjson.Object{}
	l.set(o)
	if o.Len() == 0 {
		return ""
	}
	return string(pyjson.Marshal(o))
}

// set adds what there is to an answer.
func (l label) set(o *pyjson.Object) {
	if l.metadata != nil {
		o.Set("metadata", l.metadata)
	}
	if l.priority != nil {
		o.Set("priority", pyjson.Int(*l.priority))
	}
}

// labelOf is the label of a job; one that cannot be read is empty.
func labelOf(j job.Job) label {
	if j.Label == "" {
		return label{}
	}
	v, _ := pyjson.Parse([]byte(j.Label))
	o, _ := v.(*pyjson.Object)
	l, err := readLabel(o)
	if err != nil {
		return label{}
	}
	return l
}

// has reports whether the metadata has all pairs.
func (l label) has(pairs map[string]string) bool {
	o, _ := l.metadata.(*pyjson.Object)
	for key, value := range pairs {
		if !o.Has(key) || o.String(key) != value {
			return false
		}
	}
	return true
}

// wantedLabels reads the parameters metadata[KEY]=VALUE.
func wantedLabels(q url.Values) (map[string]string, error) {
	pairs := map[string]string{}
	for name, values := range q {
		key, ok := strings.CutPrefix(name, "metadata[")
		if !ok {
			continue
		}
		key, ok = strings.CutSuffix(key, "]")
		if !ok || key == "" || len(values) != 1 || len(pairs) == maxLabels {
			return nil, &problem{status: 400, code: "invalid_metadata_filter", message: "Filters are written metadata[KEY]=VALUE, each key once, and 16 at most."}
		}
		pairs[key] = values[0]
	}
	return pairs, nil
}
