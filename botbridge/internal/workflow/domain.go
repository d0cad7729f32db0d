package workflow

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// DomainKind is what the values of an argument are.
type DomainKind string

// The kinds.
const (
	WholeNumber DomainKind = "whole"
	AnyNumber   DomainKind = "number"
	OneOf       DomainKind = "choice"
	OnOff       DomainKind = "switch"
	AnyText     DomainKind = "text"
)

// Domain is what an argument may be: what the fleet offers, within what bot.yaml allows.
type Domain struct {
	Kind      DomainKind
	Low, High float64 // of numbers
	Choices   []string
}

var (
	// ErrUnasked means that the fleet has not said what an argument may be.
	ErrUnasked = errors.New("no instance says which values it takes")
	// ErrUnsafe means that no message may set an input.
	ErrUnsafe = errors.New("it names a file or a folder: list its choices")
)

// farthest bounds numbers for which nobody gives a bound.
const farthest = 1e9

// Domain returns what an argument may be. catalog may be nil, or lack its class; then
// only what bot.yaml says counts.
func (s *arguments) Domain(a Argument, catalog *Catalog) (Domain, error) {
	class := s.in.Class(a.Takes.Node)
	spec := catalog.spec(class, a.Takes.Input)
	if spec == nil {
		return a.declared()
	}
	options := optionsOf(spec)
	switch {
	case namesFile(class, a.Takes.Input, spec) && len(a.Spec.Choices) == 0:
		return Domain{}, ErrUnsafe
	case options != nil:
		if len(a.Spec.Choices) > 0 {
			options = slices.DeleteFunc(slices.Clone(a.Spec.Choices), func(choice string) bool { return !slices.Contains(options, choice) })
		}
		if _, text := a.now.(pyjson.String); !text || len(options) == 0 {
			return Domain{}, ErrUnasked
		}
		return Domain{Kind: OneOf, Choices: options}, nil
	}
	if takes, ok := spanOf(spec); ok {
		if _, number := a.now.(pyjson.Number); !number {
			return Domain{}, ErrUnasked
		}
		d := Domain{Kind: AnyNumber, Low: max(takes.low, -farthest), High: min(takes.high, farthest)}
		if takes.whole {
			d.Kind = WholeNumber
		}
		return d.within(a.Spec), nil
	}
	list, _ := spec.(pyjson.Array)
	kind, _ := list[0].(pyjson.String)
	switch {
	case kind == "BOOLEAN" && a.Switch():
		return Domain{Kind: OnOff}, nil
	case kind == "STRING" && len(a.Spec.Choices) > 0:
		return Domain{Kind: OneOf, Choices: a.Spec.Choices}, nil
	case kind == "STRING" && pathLike(a.Takes.Input):
		return Domain{}, ErrUnsafe
	case kind == "STRING" && !a.Found:
		return Domain{Kind: AnyText}, nil
	}
	return Domain{}, ErrUnasked
}

// declared returns what bot.yaml says, without the fleet.
func (a Argument) declared() (Domain, error) {
	_, number := a.now.(pyjson.Number)
	_, text := a.now.(pyjson.String)
	switch {
	case a.Switch():
		return Domain{Kind: OnOff}, nil
	case text && len(a.Spec.Choices) > 0:
		return Domain{Kind: OneOf, Choices: a.Spec.Choices}, nil
	case number && a.Spec.Min != nil && a.Spec.Max != nil:
		return Domain{Kind: AnyNumber, Low: *a.Spec.Min, High: *a.Spec.Max}, nil
	}
	return Domain{}, ErrUnasked
}

func (d Domain) within(spec ArgumentSpec) Domain {
	if spec.Min != nil {
		d.Low = max(d.Low, *spec.Min)
	}
	if spec.Max != nil {
		d.High = min(d.High, *spec.Max)
	}
	return d
}

// namesFile reports whether an input is a file that somebody has uploaded.
func namesFile(class, input string, spec pyjson.Value) bool {
	list, _ := spec.(pyjson.Array)
	if len(list) > 1 {
		options, _ := list[1].(*pyjson.Object)
		if options != nil {
			for key := range options.All() {
				if strings.Contains(key, "upload") || strings.Contains(key, "folder") {
					return true
				}
			}
		}
	}
	return strings.Contains(class, "Load") && slices.Contains([]string{"image", "video", "audio", "file", "mask", "latent", "model_file"}, input)
}

// spec returns how a class describes an input; nil if it does not.
func (c *Catalog) spec(class, input string) pyjson.Value {
	if c == nil {
		return nil
	}
	inputs := c.classes.Object(class).Object("input")
	for _, part := range []string{"required", "optional"} {
		if spec, ok := inputs.Object(part).Get(input); ok {
			if list, ok := spec.(pyjson.Array); ok && len(list) > 0 {
				return spec
			}
		}
	}
	return nil
}

// Join returns the classes of several catalogs as one.
func Join(catalogs ...*Catalog) *Catalog {
	all := pyjson.NewObject()
	for _, c := range catalogs {
		for class, described := range c.classes.All() {
			all.Set(class, described)
		}
	}
	return &Catalog{all}
}

// Classes returns the node classes whose inputs some arguments set; without names, all
// arguments'.
func (s *arguments) Classes(names ...string) []string {
	var classes []string
	for _, a := range s.list {
		if len(names) == 0 || slices.Contains(names, a.Name) {
			classes = append(classes, s.in.Class(a.Takes.Node))
		}
	}
	slices.Sort(classes)
	return slices.Compact(classes)
}

// Adjust checks the values of a message's arguments, and returns them as the graph takes
// them.
func (c *Command) Adjust(a Args, catalog *Catalog) (Args, error) {
	if len(a.Set) == 0 {
		return a, nil
	}
	set := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(a.Set)) {
		argument, ok := c.argument(name)
		if !ok {
			return a, c.unknown("--" + name)
		}
		domain, err := c.Domain(argument, catalog)
		switch {
		case errors.Is(err, ErrUnsafe), err != nil && argument.Found && catalog.spec(c.graph.Class(argument.Takes.Node), argument.Takes.Input) != nil:
			return a, c.unknown("--" + name)
		case err != nil:
			return a, complain("arg_unasked", "flag", "--"+name)
		}
		if set[argument.Name], err = domain.take(argument.Name, a.Set[name]); err != nil {
			return a, err
		}
	}
	a.Set = set
	return a, nil
}

// take returns a value in the form of the graph.
func (d Domain) take(name, value string) (string, error) {
	flag := "--" + name
	switch d.Kind {
	case OneOf:
		return d.choose(name, value)
	case OnOff:
		on, ok := parseSwitch(value)
		if !ok {
			return "", complain("arg_switch", "flag", flag, "value", clip(value))
		}
		return strconv.FormatBool(on), nil
	case AnyText:
		if len(value) > maxWords {
			return "", complain("too_long", "max", maxWords)
		}
		return value, nil
	case WholeNumber, AnyNumber:
	}
	refusal := complain("arg_range", "flag", flag, "value", clip(value), "low", PlainNumber(d.Low), "high", PlainNumber(d.High))
	if d.Kind == WholeNumber {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || float64(n) < d.Low || float64(n) > d.High {
			if n, ok := parseNumber(value); ok && n != math.Trunc(n) {
				refusal = complain("arg_whole", "flag", flag, "value", clip(value), "low", PlainNumber(d.Low), "high", PlainNumber(d.High))
			}
			return "", refusal
		}
		return strconv.FormatInt(n, 10), nil
	}
	n, ok := parseNumber(value)
	if !ok || n < d.Low || n > d.High {
		return "", refusal
	}
	return strconv.FormatFloat(n, 'f', -1, 64), nil
}

// parseNumber reads a finite number, with a point or a comma.
func parseNumber(text string) (float64, bool) {
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", "."), 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// choose returns the choice that a value means: the same but for case, signs between
// words and the ending of a file, if only one is.
func (d Domain) choose(name, value string) (string, error) {
	if slices.Contains(d.Choices, value) {
		return value, nil
	}
	same := slices.DeleteFunc(slices.Clone(d.Choices), func(choice string) bool { return bare(choice) != bare(value) })
	if len(same) == 1 && bare(value) != "" {
		return same[0], nil
	}
	const most = 12
	list := strings.Join(d.Choices[:min(most, len(d.Choices))], ", ")
	if len(d.Choices) > most {
		list += ", …"
	}
	key := "arg_choice"
	near := Nearest(value, d.Choices)
	if near != "" {
		key = "arg_near"
	}
	return "", complain(key, "flag", "--"+name, "value", clip(value), "near", near, "choices", clipLong(list))
}

// clipLong shortens a list for a message.
func clipLong(text string) string {
	const most = 1000
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

func switchText(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func parseSwitch(text string) (on, ok bool) {
	switch strings.ToLower(text) {
	case "on", "true", "yes", "1", "да", "вкл":
		return true, true
	case "off", "false", "no", "0", "нет", "выкл":
		return false, true
	}
	return false, false
}

// fillArguments sets what was adjusted. What the graph cannot hold is left out: the
// workflow has changed meanwhile.
func (s *arguments) fillArguments(g *Graph, set map[string]string) {
	for name, value := range set {
		a, ok := s.argument(name)
		if !ok {
			continue
		}
		for _, slot := range append([]Slot{a.Slot}, a.Also...) {
			switch a.now.(type) {
			case pyjson.String:
				g.set(slot, pyjson.String(value))
			case pyjson.Bool:
				g.set(slot, pyjson.Bool(value == "true"))
			case pyjson.Number:
				if _, ok := parseNumber(value); ok && !strings.ContainsAny(value, ",_xXpP+nNiI") {
					g.set(slot, pyjson.Number(value))
				}
			}
		}
	}
}

// argumentProblems compares the declared arguments with the fleet.
func (s *arguments) argumentProblems(catalog *Catalog) (problems []string) {
	add := func(a Argument, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("arguments: %s: "+format, append([]any{a.Name}, args...)...))
	}
	for _, a := range s.list {
		spec := catalog.spec(s.in.Class(a.Slot.Node), a.Slot.Input)
		if a.Found || spec == nil {
			continue
		}
		d, err := s.Domain(a, catalog)
		if errors.Is(err, ErrUnsafe) {
			add(a, "%q %v", a.Slot.Input, err)
			continue
		}
		for _, choice := range a.Spec.Choices {
			if options := optionsOf(spec); options != nil && !slices.Contains(options, choice) {
				add(a, "no instance offers %q", choice)
			}
		}
		takes, number := spanOf(spec)
		if (a.Spec.Min != nil || a.Spec.Max != nil) && !number {
			add(a, "%q is no number, so that it has no min and max", a.Slot.Input)
		}
		for _, bound := range []*float64{a.Spec.Min, a.Spec.Max} {
			if bound != nil && number && !takes.holds(*bound) {
				add(a, "%q takes %s, not %s", a.Slot.Input, takes, PlainNumber(*bound))
			}
		}
		if err != nil && len(a.Spec.Choices) == 0 {
			add(a, "%q is nothing that a message can set", a.Slot.Input)
		}
		if err == nil && (d.Kind == WholeNumber || d.Kind == AnyNumber) && d.Low > d.High {
			add(a, "nothing is left between min and max")
		}
	}
	return problems
}
