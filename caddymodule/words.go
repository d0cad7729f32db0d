package caddymodule

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// A word of a Caddyfile is a field of a configuration with the tag `word`, which is the word's
// syntax: `max_queue <n>`. The type of the field and the form of the argument say how it is
// parsed and checked, the field's comment what it means and what its default is; the tables of
// docs/caddyfile.md are made of these. So a new setting is a field here and a field in
// hub.Settings of the same name.
type word struct {
	// name is the word; one within a block that has no type of its own is "history { age".
	name string
	// form is the syntax of its argument.
	form string
	// json is the name of the field in JSON.
	json string
	// now is what takes the place of a word of the last version, if anything does.
	now   string
	field reflect.Value
}

// wordsOf returns the words of a configuration, given as a pointer.
func wordsOf(config any) iter.Seq[word] {
	return func(yield func(word) bool) {
		v := reflect.ValueOf(config).Elem()
		for _, t := range reflect.VisibleFields(v.Type()) {
			syntax, ok := t.Tag.Lookup("word")
			if !ok {
				continue
			}
			block, inner, within := strings.Cut(syntax, " { ")
			if within = within && t.Type.Kind() == reflect.Int64; within { // a size or a duration
				syntax = strings.TrimSuffix(inner, " }")
			}
			w := word{now: t.Tag.Get("now"), field: v.FieldByIndex(t.Index)}
			w.name, w.form, _ = strings.Cut(syntax, " ")
			if within {
				w.name = block + " { " + w.name
			}
			w.json, _, _ = strings.Cut(t.Tag.Get("json"), ",")
			if !yield(w) {
				return
			}
		}
	}
}

// wordOf returns the word of a name; one without a name if there is none.
func wordOf(config any, name string) word {
	for w := range wordsOf(config) {
		if w.name == name {
			return w
		}
	}
	return word{}
}

// forms check arguments that are texts, by their forms. An argument may contain placeholders,
// which are replaced later.
var forms = map[string]func(string) error{
	"<origin>":                 checkOrigin,
	"<host:port>":              checkHostPort,
	"<host:port...>":           checkHostPort,
	"embedded|<url>":           checkRedis,
	"<folder or URL>":          checkStorage,
	"<host...>":                checkHost,
	"<name...>|*":              checkHostName,
	"<cidr or host...>":        checkAllowDirect,
	"<cidr or address...>":     checkAgentsFrom,
	"<cidr...>|private_ranges": func(text string) error { _, err := parseRanges([]string{text}); return err },
	"<tenant...>":              func(name string) error { return checkName(name, "an operator") },
	"<name...>":                func(name string) error { return checkName(name, "an instance or agent") },
	"<instance...>":            checkTrusted,
}

// secretForms check secrets as they are written. What they stand for is checked when it is known.
var secretForms = map[string]func(string) error{
	"<secret> [<older>...]": func(secret string) error {
		if hasPlaceholder(secret) {
			return nil
		}
		return checkSecret(secret)
	},
	"<secret>":                   func(string) error { return nil },
	"{env.NAME}|{file./path}":    checkOutside,
	"{env.NAME}|{file./path}...": checkOutside,
}

// choices are the values that a word may have, nil if there are too many to list.
func (w word) choices() []string {
	if strings.ContainsAny(w.form, "<{[") {
		return nil
	}
	return strings.Split(w.form, "|")
}

// repeats reports whether a word may be given several times.
func (w word) repeats() bool {
	return w.field.Kind() == reflect.Slice && !w.secret() || w.field.Type() == reflect.TypeFor[*TenantLimits]()
}

func (w word) secret() bool { return secretForms[w.form] != nil }

// texts are the texts of a field that may contain placeholders; those of secrets are replaced
// with more care.
func (w word) texts() (list []*string) {
	if w.secret() {
		return nil
	}
	switch field := w.field.Addr().Interface().(type) {
	case *string:
		list = append(list, field)
	case *[]string:
		for i := range *field {
			list = append(list, &(*field)[i])
		}
	}
	return list
}

// set sets the value of a word that takes one.
func (w word) set(value string) (err error) {
	if choices := w.choices(); choices != nil {
		if err := oneOf(value, choices...); err != nil {
			return err
		}
	}
	switch field := w.field.Addr().Interface().(type) {
	case *bool:
		*field = value == w.choices()[1]
	case *int:
		switch w.form {
		case "0|1":
			*field, err = strconv.Atoi(value)
		case "<n>[/min]":
			*field, err = parsePer(value, "min", "minute")
		case "<n>[/day]":
			*field, err = parsePer(value, "day")
		default:
			*field, err = parseCount(value)
		}
	case *int64:
		*field, err = parseSize(value)
	case *float64:
		switch w.form {
		case "<money>/day":
			*field, err = parseMoney(value, "day")
		case "<money>/s":
			*field, err = parseMoney(value, "s")
		case "<money>/h":
			*field, err = parseMoney(value, "h")
		default:
			*field, err = parseWeight(value)
		}
	case *caddy.Duration:
		*field, err = parseDuration(value)
	case **caddy.Duration:
		if strings.Contains(w.form, "|on|") && value == "on" {
			value = defaultResultAge
		}
		*field, err = parseOvertaking(value)
	default:
		w.field.SetString(value)
		err = w.checkText(value)
	}
	return err
}

// add adds the arguments of a line to a list.
func (w word) add(values []string) error {
	list := w.field.Addr().Interface().(*[]string)
	for _, value := range values {
		if !w.secret() && slices.Contains(*list, value) {
			return fmt.Errorf("%s is given twice", value)
		}
		if err := w.checkText(value); err != nil {
			return err
		}
		*list = append(*list, value)
	}
	return nil
}

// checkText checks a text by its form.
func (w word) checkText(value string) error {
	check := forms[w.form]
	if check == nil {
		check = secretForms[w.form]
	}
	if check == nil {
		return nil
	}
	return check(value)
}

// check validates a value that may come from JSON, after placeholders were replaced.
func (w word) check() error {
	v := reflect.Indirect(w.field)
	if !v.IsValid() { // a nil pointer
		return nil
	}
	switch list, isList := reflect.TypeAssert[[]string](v); {
	case v.CanInt():
		if v.Int() < 0 {
			return fmt.Errorf("%s: must not be negative", w.json)
		}
		if choices := w.choices(); choices != nil {
			return w.says(oneOf(strconv.FormatInt(v.Int(), 10), choices...))
		}
	case v.Kind() == reflect.String:
		if choices := w.choices(); choices != nil {
			return w.says(oneOf(v.String(), append([]string{""}, choices...)...))
		}
		if check := forms[w.form]; check != nil && v.String() != "" {
			return w.says(check(v.String()))
		}
	case isList:
		for _, value := range list {
			if check := forms[w.form]; check != nil {
				if err := w.says(check(value)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w word) says(err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", w.json, err)
	}
	return nil
}

// checkWords validates the values of a configuration, given as a pointer.
func checkWords(config any) error {
	for w := range wordsOf(config) {
		if err := w.check(); err != nil {
			return err
		}
	}
	return nil
}

// ownLines parse the lines of words whose syntax is more than a word and its arguments.
type ownLines map[string]func(*caddyfile.Dispenser) error

// lines parses the lines of a block into a configuration, given as a pointer, and says whether
// there are any. within is the start of the names of a block that has no type of its own.
func lines(d *caddyfile.Dispenser, config any, within string, own ownLines) (filled bool, err error) {
	var seen []string
	for nesting := d.Nesting(); d.NextBlock(nesting); filled = true {
		name, parse, w := d.Val(), own[d.Val()], wordOf(config, within+d.Val())
		if parse == nil && w.name == "" {
			return false, unknownWord(d, known(config, within, own)...)
		}
		if w.name == "" || !w.repeats() {
			if slices.Contains(seen, name) {
				return false, d.Errf("%s is given twice", name)
			}
			seen = append(seen, name)
		}
		if parse == nil {
			parse = w.parse
		}
		if err := parse(d); err != nil {
			return false, err
		}
	}
	return filled, nil
}

// parse parses the line of a word. Errors contain file and line.
func (w word) parse(d *caddyfile.Dispenser) error {
	name, nesting := d.Val(), d.Nesting()
	if block, ok := reflect.TypeAssert[caddyfile.Unmarshaler](w.field.Addr()); ok {
		return block.UnmarshalCaddyfile(d)
	}
	if w.field.Kind() == reflect.Pointer && w.field.Type().Elem().Kind() == reflect.Struct {
		w.field.Set(reflect.New(w.field.Type().Elem()))
		return w.field.Interface().(caddyfile.Unmarshaler).UnmarshalCaddyfile(d)
	}
	args := d.RemainingArgs()
	var err error
	switch list := w.field.Kind() == reflect.Slice; {
	case list && len(args) == 0:
		return d.ArgErr()
	case !list && len(args) != 1:
		return d.Errf("%s takes one argument, not %d", name, len(args))
	case list:
		err = w.add(args)
	default:
		err = w.set(args[0])
	}
	if err != nil {
		return d.Errf("%s: %w", name, err)
	}
	if d.NextBlock(nesting) {
		return d.Errf("%s takes no block", name)
	}
	return nil
}

// settle copies what two structs have under the same name and of the same kind.
func settle(to, from any) {
	source, target := reflect.ValueOf(from).Elem(), reflect.ValueOf(to).Elem()
	for _, t := range reflect.VisibleFields(target.Type()) {
		field := source.FieldByName(t.Name)
		if value := target.FieldByIndex(t.Index); field.IsValid() && field.Kind() == value.Kind() && field.CanInterface() && field.CanConvert(value.Type()) {
			value.Set(field.Convert(value.Type()))
		}
	}
}

// oneOf accepts a value out of a short list.
func oneOf(value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return fmt.Errorf("%q is not one of %s", value, strings.Join(slices.DeleteFunc(slices.Clone(choices), func(c string) bool { return c == "" }), ", "))
}
