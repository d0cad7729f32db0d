package pyjson

import "iter"

// Object is a JSON object that keeps the order of its members. The zero
// Object is empty and ready to use; a nil *Object reads as empty. It is not
// safe for use by several goroutines while one of them changes it.
type Object struct {
	members []member
	index   map[string]int // nil while the object is small
}

type member struct {
	key   string
	value Value
	raw   []byte
}

// indexFrom is the size at which a map pays off against a linear search.
const indexFrom = 12

// Member is one key and its value, for [NewObject].
type Member struct {
	Key   string
	Value Value
}

// NewObject returns an object with the given members in order.
func NewObject(members ...Member) *Object {
	o := &Object{members: make([]member, 0, len(members))}
	for _, m := range members {
		o.Set(m.Key, m.Value)
	}
	return o
}

// Len returns the number of members.
func (o *Object) Len() int {
	if o == nil {
		return 0
	}
	return len(o.members)
}

func (o *Object) find(key string) int {
	if o == nil {
		return -1
	}
	if o.index != nil {
		if i, ok := o.index[key]; ok {
			return i
		}
		return -1
	}
	for i := range o.members {
		if o.members[i].key == key {
			return i
		}
	}
	return -1
}

// Get returns the value of key and whether there is one.
func (o *Object) Get(key string) (Value, bool) {
	if i := o.find(key); i >= 0 {
		return o.members[i].value, true
	}
	return nil, false
}

// Has reports whether key is a member.
func (o *Object) Has(key string) bool { return o.find(key) >= 0 }

// Object returns the member key if it is an object, else nil.
func (o *Object) Object(key string) *Object {
	v, _ := o.Get(key)
	child, _ := v.(*Object)
	return child
}

// Array returns the member key if it is an array, else nil.
func (o *Object) Array(key string) Array {
	v, _ := o.Get(key)
	list, _ := v.(Array)
	return list
}

// String returns the member key if it is a string, else "".
func (o *Object) String(key string) string {
	v, _ := o.Get(key)
	s, _ := v.(String)
	return string(s)
}

// Raw returns the bytes the value of key had in the input of [Parse], without
// surrounding blanks. It is a part of that input, not a copy. It is nil for an
// unknown key and for a member that was set afterwards. A change deeper inside
// the value does not show in it.
func (o *Object) Raw(key string) []byte {
	if i := o.find(key); i >= 0 {
		return o.members[i].raw
	}
	return nil
}

// Set gives key a value. A new key goes to the end, a known one keeps its place.
func (o *Object) Set(key string, v Value) { o.set(key, v, nil) }

func (o *Object) set(key string, v Value, raw []byte) {
	if i := o.find(key); i >= 0 {
		o.members[i].value, o.members[i].raw = v, raw
		return
	}
	o.members = append(o.members, member{key, v, raw})
	switch {
	case o.index != nil:
		o.index[key] = len(o.members) - 1
	case len(o.members) == indexFrom:
		o.reindex()
	}
}

// Delete removes key and reports whether it was there.
func (o *Object) Delete(key string) bool {
	i := o.find(key)
	if i < 0 {
		return false
	}
	o.members = append(o.members[:i], o.members[i+1:]...)
	if o.index != nil {
		o.reindex()
	}
	return true
}

func (o *Object) reindex() {
	o.index = make(map[string]int, len(o.members))
	for i := range o.members {
		o.index[o.members[i].key] = i
	}
}

// Keys returns the keys in order.
func (o *Object) Keys() []string {
	keys := make([]string, o.Len())
	for i := range keys {
		keys[i] = o.members[i].key
	}
	return keys
}

// All yields the members in order. The object must not grow or shrink during
// the iteration; replacing the value of a known key is fine.
func (o *Object) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if o == nil {
			return
		}
		for _, m := range o.members {
			if !yield(m.key, m.value) {
				return
			}
		}
	}
}
