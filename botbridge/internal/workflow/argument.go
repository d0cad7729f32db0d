package workflow

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Argument is an input of the graph that a message sets by a flag of its own. It is a
// literal, and no input that a role sets.
type Argument struct {
	// Name is the flag without its dashes.
	Name string
	Slot Slot
	// Also are the same inputs of further samplers, and Takes is the input whose node says
	// what the value may be: it is another than Slot where that only hands a value on.
	Also  []Slot
	Takes Slot
	// Found means that bot.yaml does not declare it.
	Found bool
	Spec  ArgumentSpec

	now pyjson.Value // in the workflow
}

// Now returns the value in the workflow.
func (a Argument) Now() string { return plainValue(a.now) }

// Switch means that the flag needs no value: alone it is on.
func (a Argument) Switch() bool {
	_, ok := a.now.(pyjson.Bool)
	return ok
}

// ArgumentSpec is an argument as bot.yaml describes it.
type ArgumentSpec struct {
	// Input is a node by id or title, a dot, and an input; "-" forbids the argument.
	Input string `yaml:"input"`
	// Min and Max bound a number further than the fleet does.
	Min *float64 `yaml:"min"`
	Max *float64 `yaml:"max"`
	// Choices are all that it may be. Default: what the fleet offers.
	Choices []string `yaml:"choices"`
	// About is one line by language, for /help.
	About About `yaml:"about"`
}

// UnmarshalYAML parses an argument: a text is its input.
func (a *ArgumentSpec) UnmarshalYAML(unmarshal func(any) error) error {
	if unmarshal(&a.Input) == nil {
		return nil
	}
	var words map[string]any
	if err := unmarshal(&words); err != nil {
		return errors.New("an argument is an input such as 3.cfg, or a block of input, min, max, choices and about")
	}
	for word := range words {
		if !slices.Contains([]string{"input", "min", "max", "choices", "about"}, word) {
			return fmt.Errorf("an argument has no option %q, only input, min, max, choices and about", word)
		}
	}
	type plain ArgumentSpec
	return unmarshal((*plain)(a))
}

// Words of bot.yaml that are about the arguments that are not declared.
const (
	// otherArguments names them.
	otherArguments = "*"
	// forbidden is the word for none of them, and for one that is not to be set.
	forbidden = "-"
	// allArguments is the word for all that can be set safely.
	allArguments = "all"
)

// usualArguments are the inputs that may be set without being declared, and their flags:
// none of them makes a run take much longer, and none names a file.
func usualArguments() map[string]string {
	return map[string]string{
		"cfg": "cfg", "sampler_name": "sampler", "scheduler": "scheduler", "guidance": "guidance", "shift": "shift", "lora_name": "lora",
		"strength_model": "lora_strength", "strength_clip": "lora_clip", "stop_at_clip_layer": "clip_skip", "fps": "fps", "frame_rate": "fps",
	}
}

// costly reports whether an input makes a run take longer or need more memory without
// any bound but its node's, which is far too high: such a one needs a max in bot.yaml.
func costly(input string) bool {
	return slices.Contains([]string{
		"width", "height", "length", "frames", "num_frames", "frame_count", "video_frames", "frame_load_cap", "steps", "megapixels", "scale_by",
		"upscale_by", "scale_factor", "resolution", "duration", "seconds", "repeats", "tile_size", "batch_size", "amount",
	}, input)
}

// pathLike reports whether a text probably names a file or a place.
func pathLike(input string) bool {
	for _, part := range []string{"path", "file", "dir", "folder", "prefix", "url", "image", "video", "audio", "mask", "name"} {
		if strings.Contains(strings.ToLower(input), part) {
			return true
		}
	}
	return false
}

const (
	// maxArguments bounds the arguments of a command.
	maxArguments = 40
	// maxWords bounds a text that is set by an argument, in bytes.
	maxWords = 1000
)

var argumentName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// ownFlags are those that mean the same for every command.
func ownFlags() []string {
	return []string{"ar", "size", "n", "count", "steps", "seed", "no", "negative", "neg", "prompt", "model", "strength", "file"}
}

// arguments are what messages may set by flags of a command's own.
type arguments struct {
	in       *Graph
	declared map[string]ArgumentSpec
	list     []Argument
}

// Arguments returns what messages may set by flags of their own, the declared ones first.
// Whether the fleet knows what they may be is another question: see Domain.
func (s *arguments) Arguments() []Argument { return s.list }

// Knows reports whether the command has an argument of its own with a name.
func (s *arguments) Knows(name string) bool {
	_, known := s.argument(name)
	return known
}

// argument returns the argument with a name, or with that of its input.
func (s *arguments) argument(name string) (Argument, bool) {
	name = strings.ReplaceAll(name, "-", "_")
	for _, a := range s.list {
		if a.Name == name {
			return a, true
		}
	}
	for _, a := range s.list {
		if strings.EqualFold(a.Takes.Input, name) {
			return a, true
		}
	}
	return Argument{}, false
}

// bindArguments finds the inputs of all arguments. guesses are those that roles would set
// if bot.yaml did not keep messages from it.
func (s *arguments) bindArguments(roles map[Role][]Slot, guesses []Slot) error {
	var taken []Slot
	for _, slots := range roles {
		taken = append(taken, slots...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.declared)) {
		spec := s.declared[name]
		if name == otherArguments {
			continue
		}
		if spec.Input == forbidden {
			if !s.names(name) {
				return fmt.Errorf("arguments: %s: there is no such argument to remove", name)
			}
			continue
		}
		slot, err := s.bindArgument(name, spec, taken)
		if err != nil {
			return fmt.Errorf("arguments: %s: %w", name, err)
		}
		s.list = append(s.list, Argument{Name: name, Slot: slot, Takes: slot, Spec: spec, now: s.in.literal(slot.Node, slot.Input)})
		taken = append(taken, slot)
	}
	switch others := s.declared[otherArguments].Input; others {
	case forbidden:
	case "", allArguments:
		s.findArguments(append(taken, guesses...), others == allArguments)
	default:
		return fmt.Errorf("arguments: %q must be - (for none) or all", otherArguments)
	}
	if len(s.list) > maxArguments {
		s.list = s.list[:maxArguments]
	}
	return nil
}

func (s *arguments) bindArgument(name string, spec ArgumentSpec, taken []Slot) (Slot, error) {
	node, input, dotted := cutLast(spec.Input)
	switch {
	case !argumentName.MatchString(name):
		return Slot{}, errors.New("the name of a flag has only a-z, 0-9 and _, and at most 32 characters")
	case slices.Contains(ownFlags(), name):
		return Slot{}, fmt.Errorf("--%s is reserved; see inputs", name)
	case !dotted:
		return Slot{}, errors.New("name an input as NODE.INPUT, such as 3.cfg")
	}
	id, err := s.in.find(node)
	if err != nil {
		return Slot{}, err
	}
	slot := Slot{id, input}
	switch s.in.literal(id, input).(type) {
	case pyjson.String, pyjson.Number, pyjson.Bool:
	default:
		return slot, fmt.Errorf("node %s (%s) has no input %q with a value of its own", id, s.in.Title(id), input)
	}
	switch {
	case slices.Contains(taken, slot):
		return slot, fmt.Errorf("something else already sets %s; see inputs", slot)
	case costly(input) && spec.Max == nil:
		return slot, fmt.Errorf("%q decides how long a run takes: set max", input)
	case spec.Min != nil && spec.Max != nil && *spec.Min > *spec.Max:
		return slot, errors.New("min is above max")
	}
	return slot, nil
}

// findArguments finds inputs that are not declared: the usual ones, also where their values
// come from other nodes, or all that can be set safely. What is the same for all samplers is
// set for all; a second input of the same name has the flag with a 2.
func (s *arguments) findArguments(taken []Slot, all bool) {
	usual, samplers := usualArguments(), reader{s.in}.samplers()
	for _, id := range s.in.ids {
		for input := range s.in.inputs(id).All() {
			name, known := usual[input]
			if !known {
				name = strings.ToLower(input)
			}
			takes := Slot{id, input}
			slot, value := takes, s.in.literal(id, input)
			if value == nil && known {
				if from, ok := s.in.origin(takes, argumentFits(input)); ok {
					slot, value = from, s.in.literal(from.Node, from.Input)
				}
			}
			switch value.(type) {
			case pyjson.String, pyjson.Number, pyjson.Bool:
			default:
				continue
			}
			if !known && !all || costly(input) || slices.Contains(taken, slot) || slices.Contains(usualOf(Model), input) || slices.Contains(usualOf(Seed), input) {
				continue
			}
			if _, text := value.(pyjson.String); text && !known && pathLike(input) || s.declared[input].Input == forbidden {
				continue
			}
			sampling := slices.Contains(samplers, id)
			if at := slices.IndexFunc(s.list, func(a Argument) bool {
				return a.Found && (a.Slot == slot || sampling && a.Takes.Input == input && slices.Contains(samplers, a.Takes.Node) && s.in.same(a.Slot, slot))
			}); at >= 0 {
				if s.list[at].Slot != slot {
					s.list[at].Also = append(s.list[at].Also, slot)
				}
				continue
			}
			if name = s.freeName(name); name != "" {
				s.list = append(s.list, Argument{Name: name, Slot: slot, Takes: takes, Found: true, now: value})
			}
		}
	}
}

// argumentFits reports whether a value can be that of a usual argument.
func argumentFits(input string) func(pyjson.Value) bool {
	if strings.HasSuffix(input, "_name") || input == "scheduler" {
		return Prompt.fits
	}
	return Steps.fits
}

// names reports whether something in the graph has the name of an input or its flag.
func (s *arguments) names(name string) bool {
	usual, base := usualArguments(), strings.TrimRight(name, "0123456789")
	for _, id := range s.in.ids {
		for input := range s.in.inputs(id).All() {
			for _, known := range []string{input, strings.ToLower(input), usual[input]} {
				if known == name || known == base {
					return true
				}
			}
		}
	}
	return false
}

// usualOf is usual without the input that may be anything.
func usualOf(r Role) []string {
	return slices.DeleteFunc(usual(r), func(input string) bool { return input == "value" })
}

// freeName returns a name that no argument has, "" for one that is forbidden or cannot be
// a flag.
func (s *arguments) freeName(name string) string {
	free := name
	for n := 2; ; n++ {
		if s.declared[free].Input == forbidden || slices.Contains(ownFlags(), free) || !argumentName.MatchString(free) {
			return ""
		}
		if !slices.ContainsFunc(s.list, func(a Argument) bool { return a.Name == free }) {
			return free
		}
		free = name + strconv.Itoa(n)
	}
}

func plainValue(v pyjson.Value) string {
	switch v := v.(type) {
	case pyjson.String:
		return string(v)
	case pyjson.Number:
		return string(v)
	case pyjson.Bool:
		return switchText(bool(v))
	}
	return ""
}
