package catalog

import (
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// A dynamic group is a table: its template declares the fields of a row, and the flat prompt has
// them as group.row.field, such as loras.0.lora_name.

// defaultRows is how many rows a group has at most if it does not say so.
const defaultRows = 20

// parseFields returns the fields of a row, under their own names.
func parseFields(className string, template *pyjson.Object) []*input {
	return append(parseInputs(className, template.Object("required"), true), parseInputs(className, template.Object("optional"), false)...)
}

// at returns a field of a row under its dotted name.
func (in *input) at(name string) *input {
	f := *in
	f.name = name
	return &f
}

// field returns what a group's template says of a field; nil if it has none of that name.
func (in *input) field(name string) *input {
	for _, f := range in.fields {
		if f.name == name {
			return f
		}
	}
	return nil
}

// addRows appends the fields of the rows that a node has. Rows may be left out in between.
func (e *expansion) addRows(group *input, depth int) {
	least, most := wholeNumber(group.extra, "min", 0), wholeNumber(group.extra, "max", defaultRows)
	prefix := group.name + "."
	present := map[int]bool{}
	var rows []int
	for key := range e.values.All() {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		text, name, dotted := strings.Cut(rest, ".")
		if !dotted || !isIndex(text) || group.field(name) == nil {
			e.refuse(key, "Invalid DynamicGroup input key '"+key+"'; expected '"+prefix+"<index>.<template field>'.")
			return
		}
		row, err := strconv.Atoi(text)
		if err != nil || row >= most {
			e.refuse(key, "DynamicGroup input '"+key+"' exceeds the index limit of "+strconv.Itoa(most-1)+" (max="+strconv.Itoa(most)+").")
			return
		}
		if !present[row] {
			present[row] = true
			rows = append(rows, row)
		}
	}
	if len(rows) < least || len(rows) > most {
		e.refuse(group.name, "DynamicGroup input '"+group.name+"' received "+strconv.Itoa(len(rows))+
			" rows; expected between "+strconv.Itoa(least)+" and "+strconv.Itoa(most)+".")
		return
	}
	for _, row := range rows {
		for _, f := range group.fields {
			e.add(f.at(prefix+strconv.Itoa(row)+"."+f.name), depth+1)
		}
	}
}

// refuse notes what is wrong with a dynamic input. ComfyUI stops at the first.
func (e *expansion) refuse(name, details string) {
	if e.wrong == nil {
		e.wrong = problem("invalid_dynamic_input", "Invalid dynamic input", details, dict("input_name", pyjson.String(name)))
	}
}

// isIndex reports whether a text is the number of a row: digits, without a leading zero.
func isIndex(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == "" && (len(text) == 1 || text[0] != '0')
}

// uniteFields returns a group with the options of all; the same one if the others offer nothing more.
func (in *input) uniteFields(others []*input) *input {
	var united []*input
	for i, f := range in.fields {
		if f.options == nil {
			continue
		}
		var more []*options
		for _, other := range others {
			if same := other.field(f.name); same != nil {
				more = append(more, same.options)
			}
		}
		if all := f.options.union(more...); all != f.options {
			if united == nil {
				united = append(united, in.fields...)
			}
			united[i] = f.withOptions(all)
		}
	}
	if united == nil {
		return in
	}
	changed := *in
	changed.fields = united
	template := clone(in.extra.Object("template"))
	for _, f := range united {
		category := "optional"
		if f.required {
			category = "required"
		}
		declared := clone(template.Object(category))
		declared.Set(f.name, f.config())
		template.Set(category, declared)
	}
	changed.extra = clone(in.extra)
	changed.extra.Set("template", template)
	return &changed
}

// foreign reports a type that stands for several inputs, as its name says, in a way that this
// version does not know. Only an instance can tell which inputs those are.
func (in *input) foreign() bool {
	rest, own := strings.CutPrefix(in.kind, "COMFY_")
	at := strings.LastIndex(rest, "_V")
	if !own || at < 0 || rest[at+2:] == "" || strings.Trim(rest[at+2:], "0123456789") != "" {
		return false
	}
	return !in.dynamic() && in.kind != kindMatch
}
