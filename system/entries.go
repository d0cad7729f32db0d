package system

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// maxEntries is how many entries a map, list or channel of a hub may have when all is quiet:
// more than there are hosts, fewer than there were prompts. A server has two in some.
func maxEntries(servers int) int { return 18 + 2*servers }

// mayKeep are those that may have more by design, by the beginnings of their names: what is
// as large as the code or the catalog, and what has a bound of its own.
var mayKeep = []string{
	"catalog.", "pyjson.", "lua.", "prometheus.", "metrics.Metrics.",
	"files.copies.names",                                  // maxCopies, and a few minutes
	"internal.FastSemaphore.",                             // as many as there may be connections to Redis
	"pool.ConnPool.",                                      // the same
	"http.mapping", "http.pattern.", "http.routingIndex.", // routes
	"http.wantConnQueue.",      // dials that have ended, until that server is called next
	"dispatch.order.overtaken", // 20,000
	"dispatch.waitLine.gone",   // until the line is read next
	"redis.Clock.eras",         // maxEras
	"tenantlru.values",         // each has its own bound
	"queue.copied.record",      // a few minutes of ended jobs
	"schedule.",                // samples of each class
}

// elsewhere are the packages of which a hub sees only doors: what lies behind is not its own.
var elsewhere = []string{
	"comfyhub/system", "comfyhub/internal/redis/engine", "testing", "log/slog",
}

// checkEntries checks that the hub forgets all that it has kept of prompts and clients that
// are gone. It may take as long as Redis, whose clock may have made that short. The race
// detector does not know that nobody else runs, so there is no check beside it.
func (h *Hub) checkEntries(ledger *Ledger) {
	if raceDetector {
		return
	}
	for deadline := time.Now().Add(forgetWithin); ; <-time.After(10 * time.Second) {
		kept := h.kept()
		if len(kept) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, field := range slices.Sorted(maps.Keys(kept)) {
				ledger.breach(h.name, "all is quiet, and it has %d entries in %s", kept[field], field)
			}
			return
		}
	}
}

// kept are the fields that have more entries than they may.
func (h *Hub) kept() map[string]int {
	entries := h.entries()
	maps.DeleteFunc(entries, func(field string, n int) bool {
		return n <= maxEntries(len(h.w.Comfys)+everRented(h.w.Rental)) || slices.ContainsFunc(mayKeep, func(beginning string) bool { return strings.HasPrefix(field, beginning) })
	})
	return entries
}

// entries counts the entries of all maps, lists and channels that a hub has, by the field
// that they are in. Nobody else runs meanwhile. It must be called in a bubble.
func (h *Hub) entries() map[string]int {
	c := count{of: map[string]int{}, seen: map[visit]bool{}}
	h.w.still.look(func() { c.value(reflect.ValueOf(h.running), "") })
	return c.of
}

// visit is a place that was counted. A struct has the address of its first field.
type visit struct {
	at unsafe.Pointer
	of reflect.Type
}

// count is what was counted so far.
type count struct {
	of   map[string]int
	seen map[visit]bool
}

// value counts what can be reached from a value in a field.
func (c *count) value(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && c.first(v) {
			c.value(v.Elem(), field)
		}
	case reflect.Interface:
		if !v.IsNil() {
			c.value(v.Elem(), field)
		}
	case reflect.Struct:
		if slices.ContainsFunc(elsewhere, func(part string) bool { return strings.Contains(v.Type().PkgPath(), part) }) {
			return
		}
		for f, in := range v.Fields() {
			c.value(in, v.Type().String()+"."+f.Name)
		}
	case reflect.Map:
		if c.first(v) {
			c.of[field] += v.Len()
			for entries := v.MapRange(); entries.Next(); {
				c.value(entries.Value(), field)
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		if v.Kind() == reflect.Slice {
			c.of[field] += v.Len()
		}
		for n := range v.Len() {
			c.value(v.Index(n), field)
		}
	case reflect.Chan:
		c.of[field] += v.Len()
	default: // has no entries
	}
}

// first reports whether a pointer or map is met for the first time.
func (c *count) first(v reflect.Value) bool {
	at := visit{v.UnsafePointer(), v.Type()}
	met := c.seen[at]
	c.seen[at] = true
	return !met
}
