package convert

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// values reads the saved values of a node's widgets.
type values struct {
	c *converter
	// left are those that are not read yet, named all of them in workflows that save them by name.
	left  pyjson.Array
	named *pyjson.Object
	// old means that the workflow is older than the companions of widgets, and has no values
	// for them. It is known once decided.
	old, decided bool
	out          *pyjson.Object
}

// widgetValues are the inputs that the saved values of a node's widgets make. What is behind
// the last widget belongs to buttons, such as that for uploads.
func (c *converter) widgetValues(of *class, saved pyjson.Value) (inputs *pyjson.Object, reason string) {
	r := &values{c: c, out: pyjson.NewObject()}
	r.left, _ = saved.(pyjson.Array)
	r.named, _ = saved.(*pyjson.Object)
	if reason = r.read(of.widgets, 0); reason == "" && of.choices {
		r.choices()
	}
	return r.out, reason
}

// read reads the values of widgets, each followed by those that it brings. There are at least
// so many others after them.
func (r *values) read(widgets []widget, others int) (reason string) {
	for i, w := range widgets {
		others := others + len(widgets) - i - 1
		switch {
		case w.refusal != "":
			return w.refusal
		case !r.c.step(1): // the caller asks
			return ""
		case w.unsaved:
			r.out.Set(w.name, wrapped(w.fixed))
			continue
		case w.companion && r.isOld(1+others):
			continue
		}
		v := r.next(w)
		if w.rows != nil {
			if reason = r.table(w, v, others); reason != "" {
				return reason
			}
		}
		if w.local {
			continue
		}
		if v == nil {
			return "no value for " + w.name
		}
		r.out.Set(w.name, wrapped(v))
		if w.options == nil {
			continue
		}
		key, isText := v.(pyjson.String)
		brought, offered := w.options[string(key)]
		if !isText || !offered {
			return fmt.Sprintf("%s has a value that its class does not offer, so the values after it cannot be told apart", w.name)
		}
		if reason = r.read(brought, others); reason != "" {
			return reason
		}
	}
	return ""
}

// next is the saved value of a widget, or that of a new one.
func (r *values) next(w widget) (v pyjson.Value) {
	if r.named != nil {
		v, _ = r.named.Get(w.name)
	} else if len(r.left) > 0 {
		v, r.left = r.left[0], r.left[1:]
	}
	return orElse(w.fixed, orElse(v, w.fallback))
}

// table reads the rows of a table.
func (r *values) table(w widget, saved pyjson.Value, others int) (reason string) {
	count := max(wholeOf(saved), numberOf(w.rows, "min"))
	if count > numberOf(w.rows, "max") {
		return w.name + " has more rows than its class allows"
	}
	for i := range count {
		row := within(w.name+"."+strconv.Itoa(i), w.rows.Object("template"))
		if !r.c.step(1) {
			return ""
		}
		if reason = r.read(row, others); reason != "" {
			return reason
		}
	}
	return ""
}

func numberOf(o *pyjson.Object, key string) int {
	v, _ := o.Get(key)
	return wholeOf(v)
}

// wholeOf is a number that counts something: none if it is no such number.
func wholeOf(v pyjson.Value) int { return max(0, slotOf(v)) }

// isOld reports whether there is no value for the companion that comes next. Workflows older
// than the companion of some widget have none.
func (r *values) isOld(widgets int) bool {
	if r.decided || len(r.left) == 0 {
		return r.old
	}
	r.decided, r.old = true, true
	switch v := r.left[0].(type) {
	case pyjson.Bool: // it was a switch once
		r.old = len(r.left) < widgets
	case pyjson.String:
		r.old = !slices.Contains([]string{"fixed", "increment", "decrement", "randomize", "increment-wrap"}, string(v))
	}
	return r.old
}

// choices reads what the web UI adds to a CustomCombo: the options that the user writes, and
// the index of the one that is chosen. After the last option there is always an empty one.
func (r *values) choices() {
	chosen, _ := r.out.Get("choice")
	index := -1
	r.next(widget{name: "index"})
	for n := 0; r.c.step(1); n++ {
		name := "option" + strconv.Itoa(n+1)
		option := r.next(widget{name: name, fallback: pyjson.String("")})
		r.out.Set(name, wrapped(option))
		if index < 0 && pyjson.Equal(option, chosen) {
			index = n
		}
		if option == pyjson.String("") {
			break
		}
	}
	r.out.Set("index", pyjson.Int(int64(index)))
}
