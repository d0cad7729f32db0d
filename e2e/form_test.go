package e2e

import (
	"encoding/binary"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/e2e/storedtest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// keyForm is what a version of the hub must not change about a key: its type,
// whether it expires, and the kinds of values by field. The fields of a hash
// are its own; other types have one, which has no name.
type keyForm struct {
	Type   string
	Leaves bool
	Fields map[string]kinds
}

// kinds are the kinds of values that a field was seen to have, none if it was
// empty.
type kinds map[string]bool

// varying are the parts of names that differ in every run.
var varying = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-9a-f]{16}/[0-9a-f]{16}`), "HUB"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`[0-9a-f]{16,64}`), "HEX"},
	{regexp.MustCompile(`/[0-9]{10}-HEX`), "/TIME-HEX"},
	{regexp.MustCompile(`(content|names|output)/[0-9a-f]{2}/`), "$1/XX/"},
	{regexp.MustCompile(`^[\w-]{16}$`), "TOKEN"},
	{regexp.MustCompile(`_[0-9]{5}_`), "_NUMBER_"},
	{regexp.MustCompile(`^[0-9]+:HEX`), "PACKED"},
}

// plainName is a name without them.
func plainName(name string) string {
	for _, v := range varying {
		name = v.pattern.ReplaceAllString(name, v.name)
	}
	return name
}

// forms are the forms of all keys by plain name.
func (s *stored) forms(t *testing.T) map[string]keyForm {
	t.Helper()
	out := map[string]keyForm{}
	for name, k := range s.Keys {
		name = plainName(name)
		f := keyForm{k.Type, k.Left > 0, map[string]kinds{}}
		if before, found := out[name]; found {
			require.Equal(t, before.Type, f.Type, name)
			require.Equal(t, before.Leaves, f.Leaves, name)
			f = before
		}
		switch k.Type {
		case "hash":
			for pair := range slices.Chunk(k.Values, 2) {
				f.add(t, plainName(string(pair[0])), pair[1])
			}
		case "zset":
			for pair := range slices.Chunk(k.Values, 2) {
				f.add(t, "", pair[0])
			}
		default:
			for _, value := range k.Values {
				f.add(t, "", value)
			}
		}
		out[name] = f
	}
	return out
}

func (f keyForm) add(t *testing.T, field string, value storedtest.Blob) {
	t.Helper()
	if f.Fields[field] == nil {
		f.Fields[field] = kinds{}
	}
	if kind := kindOf(t, string(value)); kind != "" {
		f.Fields[field][kind] = true
	}
}

var number = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// kindOf says what a value is: a number, JSON with its names, a packed list with
// the kinds of its parts, or a compressed body with its tags.
func kindOf(t *testing.T, value string) string {
	t.Helper()
	var object map[string]any
	switch {
	case value == "":
		return ""
	case number.MatchString(value):
		return "number"
	case json.Unmarshal([]byte(value), &object) == nil:
		names := []string{}
		for name := range object {
			names = append(names, plainName(name))
		}
		slices.Sort(names)
		return "{" + strings.Join(slices.Compact(names), " ") + "}"
	case strings.HasPrefix(value, "\x28\xb5\x2f\xfd"):
		return "compressed " + bodyKind(t, value)
	}
	if parts, ok := unpack(value); ok {
		list := make([]string, len(parts))
		for n, part := range parts {
			list[n] = kindOf(t, part)
		}
		return "packed " + strings.Join(list, " ")
	}
	if !storedtest.Blob(value).IsText() {
		return "binary"
	}
	return "text"
}

// unpack splits a list whose parts are each preceded by their length.
func unpack(packed string) (parts []string, ok bool) {
	for packed != "" {
		digits, rest, found := strings.Cut(packed, ":")
		n, err := strconv.Atoi(digits)
		if !found || err != nil || n < 0 || n > len(rest) {
			return nil, false
		}
		parts, packed = append(parts, rest[:n]), rest[n:]
	}
	return parts, true
}

// bodyKind is the kind of a compressed value: JSON, or the tags of a job's body.
func bodyKind(t *testing.T, value string) string {
	t.Helper()
	d := must.Get(zstd.NewReader(nil))(t)
	defer d.Close()
	data := must.Get(d.DecodeAll([]byte(value), nil))(t)
	if json.Valid(data) {
		return kindOf(t, string(data))
	}
	tags := map[uint64]bool{}
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		require.Positive(t, n)
		data = data[n:]
		size, n := binary.Uvarint(data)
		require.Positive(t, n)
		require.LessOrEqual(t, size, uint64(len(data)-n))
		data = data[n+int(size):]
		tags[tag] = true
	}
	var list []string
	for tag := range uint64(64) {
		if tags[tag] {
			list = append(list, string(rune('0'+tag)))
		}
	}
	return "body " + strings.Join(list, " ")
}

// messages are the words that begin what is published, by channel, with the number
// of parts that follow each.
func (s *stored) messages() map[string]map[string]int {
	out := map[string]map[string]int{}
	for _, p := range s.Published {
		channel := plainName(p.Channel)
		if out[channel] == nil {
			out[channel] = map[string]int{}
		}
		if parts, ok := unpack(string(p.Payload)); ok && len(parts) > 0 {
			out[channel][parts[0]] = len(parts) - 1
		}
	}
	return out
}
