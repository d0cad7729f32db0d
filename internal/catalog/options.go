package catalog

import (
	"math"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// options is what a combo offers: usually strings, but also numbers and booleans.
type options struct {
	list pyjson.Array
	// index maps the key of an option to its position in list.
	index map[string]int
	// files means that some option looks like the name of a file.
	files bool
}

func newOptions(list pyjson.Array) *options {
	o := &options{list: list, index: make(map[string]int, len(list))}
	for i, item := range list {
		key := optionKey(item)
		if _, known := o.index[key]; !known {
			o.index[key] = i
		}
		o.files = o.files || looksLikeFile(item)
	}
	return o
}

// optionKey is the text by which options are compared: a Windows instance lists
// sub\model.safetensors where another lists sub/model.safetensors, and both mean
// the same file.
func optionKey(v pyjson.Value) string {
	switch v := v.(type) {
	case pyjson.String:
		return strings.ReplaceAll(string(v), `\`, "/")
	case pyjson.Bool, pyjson.Number:
		n, _ := python.Number(v)
		if f := n.Float64(); !n.IsInt() && math.Abs(f) < 1<<53 && f == math.Trunc(f) {
			return string(pyjson.Int(int64(f)))
		}
		return string(n.Python())
	}
	return python.Repr(v)
}

// has reports whether the value is an option. As in Python, a number matches an
// equal option of another numeric type.
func (o *options) has(v pyjson.Value) bool {
	if o == nil {
		return false
	}
	i, ok := o.index[optionKey(v)]
	if !ok {
		return false
	}
	_, isText := v.(pyjson.String)
	_, listsText := o.list[i].(pyjson.String)
	if isText == listsText {
		return true
	}
	// "1" and 1 have the same key, so compare the values.
	for _, item := range o.list {
		if python.Equal(item, v) {
			return true
		}
	}
	return false
}

// hasKey reports whether an option of that key is offered.
func (o *options) hasKey(key string) bool {
	if o == nil {
		return false
	}
	_, ok := o.index[key]
	return ok
}

// keys returns the keys of all options, in order.
func (o *options) keys() []string {
	if o == nil {
		return nil
	}
	keys := make([]string, 0, len(o.list))
	for _, item := range o.list {
		keys = append(keys, optionKey(item))
	}
	return keys
}

// union appends to o what only the others offer. It returns o itself if there is
// nothing to add. The folders of instances are sorted lists and stay sorted:
// clients use the first file as default.
func (o *options) union(others ...*options) *options {
	list := o.list
	var added map[string]bool
	for _, other := range others {
		if other == nil || other == o {
			continue
		}
		for _, item := range other.list {
			key := optionKey(item)
			if o.hasKey(key) || added[key] {
				continue
			}
			if added == nil {
				added = map[string]bool{}
				list = append(make(pyjson.Array, 0, len(o.list)+8), o.list...)
			}
			added[key] = true
			list = append(list, item)
		}
	}
	if added == nil {
		return o
	}
	if all := append([]*options{o}, others...); !slices.ContainsFunc(all, func(o *options) bool { return !o.isFolder() }) {
		slices.SortFunc(list, byKey)
	}
	return newOptions(list)
}

// isFolder reports whether the options are sorted files. An empty list can be that
// of an empty folder.
func (o *options) isFolder() bool {
	return o == nil || len(o.list) == 0 || o.files && slices.IsSortedFunc(o.list, byKey)
}

// looksLikeFile reports whether an option looks like a file name: it has a folder,
// or an extension with a letter in it.
func looksLikeFile(v pyjson.Value) bool {
	s, ok := v.(pyjson.String)
	if !ok {
		return false
	}
	if strings.ContainsAny(string(s), `/\`) {
		return true
	}
	dot := strings.LastIndexByte(string(s), '.')
	if dot <= 0 {
		return false
	}
	extension := string(s[dot+1:])
	if extension == "" || len(extension) > 12 {
		return false
	}
	letters := false
	for _, r := range extension {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
			letters = true
		case r >= '0' && r <= '9':
		default:
			return false
		}
	}
	return letters
}
