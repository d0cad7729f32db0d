package rules

import (
	"math"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// What A1111 takes for members that a request leaves out.
const (
	defaultSteps  = 50
	defaultSide   = 512
	defaultHires  = 2
	defaultFactor = 2
)

// request reads a node that does a request of A1111's API.
func (r *reader) request(id, class string, inputs *pyjson.Object) {
	payload := parsed(inputs, a1111.InputPayload)
	r.at = Claim{Node: id, Input: a1111.InputPayload}
	at := r.at
	for member, value := range payload.All() {
		r.at = at
		r.at.Within = []string{member}
		r.member(a1111.MeaningOf(class, member), member, value, payload)
	}
	r.at = at
	switch class {
	case a1111.ClassTxt2Img, a1111.ClassImg2Img:
	case a1111.ClassExtraSingle, a1111.ClassExtraBatch:
		r.enlarged(payload)
		return
	default:
		return
	}
	r.sizes(payload)
	options := parsed(inputs, a1111.InputOptions)
	r.at.Input = a1111.InputOptions
	r.settings(options)
	var chained string
	if link := inputs.Array(a1111.InputCheckpoint); len(link) == 2 {
		from, _ := link[0].(pyjson.String)
		r.at.Input = a1111.InputCheckpoint
		chained = r.nodes.Object(string(from)).Object("inputs").String(a1111.InputCheckpoint)
		r.checkpoint(a1111.OptionCheckpoint, pyjson.String(chained))
	}
	if chained == "" && payload.Object(a1111.OptionsOfRequest).String(a1111.OptionCheckpoint) == "" && options.String(a1111.OptionCheckpoint) == "" {
		r.at = at
		r.at.Within = []string{a1111.OptionsOfRequest, a1111.OptionCheckpoint}
		r.add(Claim{About: aboutModel, Unknown: "name a checkpoint, because not every one may be used and the server would take whatever is loaded"})
	}
}

// parsed is an input that is a JSON object.
func parsed(inputs *pyjson.Object, name string) *pyjson.Object {
	v, _ := pyjson.Parse([]byte(inputs.String(name)))
	o, _ := v.(*pyjson.Object)
	return o
}

// member reads a member of a request.
func (r *reader) member(m a1111.Meaning, name string, value pyjson.Value, payload *pyjson.Object) {
	switch m {
	case a1111.Harmless:
	case a1111.Picture:
		texts(value, func(text string) {
			if strings.Contains(strings.TrimPrefix(text, "data:"), ":") {
				r.refuse("it must be a picture in base64: the hub has no server fetch it from an address")
			}
		})
	case a1111.Prompt:
		r.prompt(value)
	case a1111.Checkpoint:
		r.checkpoint(name, value)
	case a1111.Model:
		texts(value, r.file)
	case a1111.Styles:
		if says(value) && !r.opened(name) {
			r.add(Claim{About: aboutModel, Unknown: "styles may name models, and not every one may be used; write out what they say"})
		}
	case a1111.Settings:
		settings, ok := value.(*pyjson.Object)
		if !ok && says(value) {
			r.refuse("it must be an object") // A1111 would also take pairs
		}
		r.settings(settings)
	case a1111.Script:
		script, _ := value.(pyjson.String)
		if says(value) && !r.opened(string(script)) {
			r.refuse("the script " + shortened(string(script)) + " may not be used here")
		}
	case a1111.ScriptArgs:
		switch script := payload.String("script_name"); {
		case !says(value):
		case r.opened(script):
			r.unread(value)
		default:
			r.refuse("they are for a script, and none is named that may be used here")
		}
	case a1111.Scripts:
		r.scripts(value)
	default:
		r.closed(name, value)
	}
}

// closed reads a member or a setting that passes only where the operator says so.
func (r *reader) closed(name string, value pyjson.Value) {
	switch {
	case !says(value):
	case r.opened(name):
		r.unread(value)
	default:
		r.refuse("it may not be used here")
	}
}

// scripts reads the scripts that run beside a request. Clients send those that they have
// switched off, too.
func (r *reader) scripts(value pyjson.Value) {
	all, _ := value.(*pyjson.Object)
	at := r.at
	for name, script := range all.All() {
		r.at = at
		r.at.Within = append(slices.Clip(at.Within), name)
		about, _ := script.(*pyjson.Object)
		on := says(script) && about == nil
		for _, args := range about.All() {
			list, ok := args.(pyjson.Array)
			on = on || !ok && says(args)
			for _, arg := range list {
				on = on || says(arg)
			}
		}
		switch {
		case !on:
		case r.opened(name):
			r.unread(script)
		default:
			r.refuse("the script may not be used here")
		}
	}
	r.at = at
	if all == nil && says(value) {
		r.refuse("it must be an object")
	}
}

// settings reads settings that hold for a request.
func (r *reader) settings(all *pyjson.Object) {
	at := r.at
	for name, value := range all.All() {
		r.at = at
		r.at.Within = append(slices.Clip(at.Within), name)
		r.member(a1111.MeaningOfSetting(name), name, value, nil)
	}
	r.at = at
}

// unread reads what the operator lets pass, whatever it means: addresses and the names of models
// are found by their form.
func (r *reader) unread(value pyjson.Value) {
	texts(value, func(text string) {
		lower := strings.ToLower(strings.TrimSpace(text))
		if strings.HasPrefix(lower, "http:") || strings.HasPrefix(lower, "https:") || strings.HasPrefix(lower, "file:") {
			r.refuse("it must not be an address, from which a server would fetch something")
		}
		tagged := tagged(text)
		for _, name := range tagged {
			r.lora(name)
		}
		switch {
		case len(tagged) > 0 || a1111.NamesNone(text):
		case namesFile(unhashed(text)), strings.HasSuffix(lower, "]") && unhashed(text) != text:
			r.add(Claim{About: aboutModel, Name: text})
		default:
			r.add(Claim{About: aboutModel, Name: text, Doubtful: true})
		}
	})
}

// prompt reads a text from which pictures are made.
func (r *reader) prompt(value pyjson.Value) {
	texts(value, func(text string) {
		for _, name := range tagged(text) {
			r.lora(name)
		}
		for _, name := range embeddingsIn(text, r.Names(a1111.ClassFiles, a1111.InputEmbedding)) {
			r.file(name)
		}
	})
}

func (r *reader) lora(name string) {
	r.add(Claim{About: aboutModel, Name: name, Files: filesOf(name, r.Names(a1111.ClassFiles, a1111.InputLora))})
}

// file reads the name of a file of which the hub has no list.
func (r *reader) file(name string) {
	if !a1111.NamesNone(name) && !builtIn(name) {
		r.add(Claim{About: aboutModel, Name: name})
	}
}

// builtIn reports whether something that enlarges pictures has no file.
func builtIn(name string) bool {
	return name == "Lanczos" || name == "Nearest" || name == "Latent" || strings.HasPrefix(name, "Latent (")
}

// checkpoint reads the name of a checkpoint.
func (r *reader) checkpoint(member string, value pyjson.Value) {
	name, ok := value.(pyjson.String)
	switch {
	case !ok && says(value):
		r.refuse("it must be a text")
	case a1111.SaysNoCheckpoint(member, string(name)):
	default:
		files := filesOf(string(name), r.Names(a1111.ClassCheckpoint, a1111.InputCheckpoint))
		c := Claim{About: aboutModel, Name: string(name), Files: files}
		if isHash(string(name)) && (len(files) == 0 || len(files) == 1 && files[0] == string(name)) {
			c.Unknown = "which checkpoint has this hash is not known; name its file"
		}
		r.add(c)
	}
}

func (r *reader) refuse(why string) { r.add(Claim{About: aboutMember, Unknown: why}) }

// opened reports whether the operator lets something pass. A1111 knows scripts in whatever case.
func (r *reader) opened(name string) bool { return Opens(r.Open, name) }

// Opens reports whether one of the operator's patterns lets a member, a setting or a script pass.
func Opens(patterns []string, name string) bool {
	return name != "" && slices.ContainsFunc(patterns, func(pattern string) bool { return matches(strings.ToLower(pattern), strings.ToLower(name)) })
}

// says reports whether a value asks for anything.
func says(value pyjson.Value) bool {
	switch v := value.(type) {
	case nil, pyjson.Null:
		return false
	case pyjson.Bool:
		return bool(v)
	case pyjson.String:
		return v != ""
	case pyjson.Array:
		return len(v) > 0
	case *pyjson.Object:
		return v.Len() > 0
	}
	return true
}

// shortened is a name as errors repeat it.
func shortened(name string) string { return strings.ToValidUTF8(name[:min(len(name), 100)], "") }

// numberOf is a number of a request, or what stands for it if it is left out.
func numberOf(o *pyjson.Object, name string, otherwise float64) (n float64, known bool) {
	value, _ := o.Get(name)
	switch v := value.(type) {
	case nil, pyjson.Null:
		return otherwise, true
	case pyjson.Bool:
		if v {
			return 1, true
		}
		return 0, true
	case pyjson.Array, *pyjson.Object:
		return 0, false
	}
	return number(nil, value, 0)
}

// claim adds a number of a request.
func (r *reader) claim(member, about string, value float64, known bool) {
	c := Claim{Within: []string{member}, About: about, Value: value}
	if !known || math.IsNaN(value) {
		c.Unknown = "its value must be a number"
	}
	r.add(c)
}

// sizes reads how large, long and many the pictures of a request are.
func (r *reader) sizes(payload *pyjson.Object) {
	direct := func(member, about string, otherwise float64) float64 {
		n, known := numberOf(payload, member, otherwise)
		r.claim(member, about, n, known)
		return n
	}
	width, height := direct("width", "width", defaultSide), direct("height", "height", defaultSide)
	// The noise has these sizes first.
	direct("seed_resize_from_w", "width", 0)
	direct("seed_resize_from_h", "height", 0)
	direct("steps", "steps", defaultSteps)
	direct("refiner_steps", "steps", 0)
	size, ofSize := numberOf(payload, "batch_size", 1)
	count, ofCount := numberOf(payload, "n_iter", 1)
	member := "batch_size"
	if count > size || !ofCount {
		member = "n_iter"
	}
	r.claim(member, batch, max(size, 1)*max(count, 1), ofSize && ofCount)
	if on, _ := payload.Get("enable_hr"); !switchedOn(on) {
		return
	}
	direct("firstphase_width", "width", 0)
	direct("firstphase_height", "height", 0)
	direct("hr_second_pass_steps", "steps", 0)
	x, y := direct("hr_resize_x", "width", 0), direct("hr_resize_y", "height", 0)
	scale, known := numberOf(payload, "hr_scale", defaultHires)
	member = "hr_scale"
	if x != 0 || y != 0 { // the other side follows from the picture's, of which a part is cut off
		scale, known, member = max(x/max(width, 1), y/max(height, 1)), true, "hr_resize_x"
		if x == 0 {
			member = "hr_resize_y"
		}
	}
	r.claim(member, "width", width*scale, known)
	r.claim(member, "height", height*scale, known)
}

// switchedOn reports whether A1111 takes a value for true.
func switchedOn(value pyjson.Value) bool {
	switch v := value.(type) {
	case pyjson.String:
		switch strings.ToLower(strings.TrimSpace(string(v))) {
		case "", "0", "off", "f", "false", "n", "no":
			return false
		}
	case pyjson.Number:
		return v.Float64() != 0
	}
	return says(value)
}

// enlarged reads how large pictures become.
func (r *reader) enlarged(payload *pyjson.Object) {
	mode, known := numberOf(payload, "resize_mode", 0)
	if mode == 1 {
		for member, about := range map[string]string{"upscaling_resize_w": "width", "upscaling_resize_h": "height"} {
			n, known := numberOf(payload, member, defaultSide)
			r.claim(member, about, n, known)
		}
		return
	}
	factor, ofFactor := numberOf(payload, "upscaling_resize", defaultFactor)
	if known && ofFactor && factor <= 1 {
		return
	}
	for _, about := range []string{"width", "height"} {
		r.add(Claim{Within: []string{"upscaling_resize"}, About: about, Unknown: "how large the picture becomes must be said, by resize_mode 1 with upscaling_resize_w and upscaling_resize_h"})
	}
}
