package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	cacheClassic = "classic"
	cacheLRU     = "lru"
	cacheNone    = "none"
)

// cacheKey identifies a node by its class and everything that feeds it, not by its
// id.
type cacheKey [sha256.Size]byte

// cached is what a node left behind.
type cached struct {
	outputs []any
	ui      *pyjson.Object // nil if the node has none
	meta    *pyjson.Object
}

// resultCache keeps node results between prompts.
type resultCache struct {
	mode    string
	size    int
	entries map[cacheKey]*cached
	recent  []cacheKey // least recently used first, only for cacheLRU
}

func newResultCache(mode string, size int) *resultCache {
	return &resultCache{mode: mode, size: size, entries: map[cacheKey]*cached{}}
}

// begin prepares for a prompt: the classic cache drops everything that is not part
// of it.
func (c *resultCache) begin(keys map[string]cacheKey) {
	switch c.mode {
	case cacheClassic:
		keep := make(map[cacheKey]bool, len(keys))
		for _, key := range keys {
			keep[key] = true
		}
		for key := range c.entries {
			if !keep[key] {
				delete(c.entries, key)
			}
		}
	case cacheNone:
		clear(c.entries)
	}
}

func (c *resultCache) get(key cacheKey) (*cached, bool) {
	entry, ok := c.entries[key]
	if ok && c.mode == cacheLRU {
		c.touch(key)
	}
	return entry, ok
}

func (c *resultCache) put(key cacheKey, entry *cached) {
	c.entries[key] = entry
	if c.mode != cacheLRU {
		return
	}
	c.touch(key)
	for len(c.recent) > c.size {
		delete(c.entries, c.recent[0])
		c.recent = c.recent[1:]
	}
}

func (c *resultCache) touch(key cacheKey) {
	c.recent = slices.DeleteFunc(c.recent, func(k cacheKey) bool { return k == key })
	c.recent = append(c.recent, key)
}

// keyer computes the cache keys of one prompt.
type keyer struct {
	run   *run
	known map[string]cacheKey
	salt  uint64 // makes keys that match nothing
}

func newKeyer(r *run) *keyer { return &keyer{run: r, known: map[string]cacheKey{}} }

// key returns the cache key of a node of the prompt or of an expanded node.
func (k *keyer) key(id string) cacheKey {
	if key, ok := k.known[id]; ok {
		return key
	}
	k.known[id] = k.unique() // a cycle ends here
	node := k.run.node(id)
	h := sha256.New()
	buf := pyjson.AppendString(nil, node.String("class_type"))
	if parent := k.run.parents[id]; parent != "" {
		key := k.key(parent)
		buf = append(append(buf, id...), key[:]...)
	}
	cl, ok := k.run.proc.cat.class(node.String("class_type"))
	if ok && cl.fingerprint != nil {
		print, err := cl.fingerprint(k.run.proc.files, node.Object("inputs"))
		if err != nil {
			print = ""
		}
		if print == "" {
			salt := k.unique()
			buf = append(buf, salt[:]...)
		}
		buf = append(buf, print...)
	}
	inputs := node.Object("inputs")
	names := inputs.Keys()
	slices.Sort(names)
	for _, name := range names {
		v, _ := inputs.Get(name)
		buf = pyjson.AppendString(buf, name)
		if isLink(v) && k.run.node(linkSource(v)) != nil {
			key := k.key(linkSource(v))
			buf = append(buf, key[:]...)
			buf = pyjson.Append(buf, v.(pyjson.Array)[1])
			continue
		}
		buf = pyjson.Append(buf, v)
	}
	h.Write(buf)
	var key cacheKey
	h.Sum(key[:0])
	k.known[id] = key
	return key
}

// unique returns a key that no other prompt has, for a node that always runs.
func (k *keyer) unique() cacheKey {
	k.salt++
	return sha256.Sum256(binary.BigEndian.AppendUint64(append([]byte(k.run.id), pyjson.Append(nil, pyjson.Int(now()))...), k.salt))
}

func linkSource(v pyjson.Value) string { return string(v.(pyjson.Array)[0].(pyjson.String)) }
